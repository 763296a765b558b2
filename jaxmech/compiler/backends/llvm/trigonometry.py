"""Sine and cosine of the same argument as a pair of polynomials.

The functions of the C library take one number at a time. Here x is reduced by the nearest multiple
of pi/2, stored in three parts: a fused multiply-add rounds once, and subtracting the multiple of
the first part is exact (Boldo, Daumas and Li 2009). The minimax polynomials of Cephes (Moshier
1989, `sin.c`) give both on [-pi/4, pi/4]. The multiple is rounded to an integer by adding a number
too large to have a fraction; the last two bits of the sum then give the quadrant. So |x| must be
below 2^51.
"""

from collections.abc import Sequence

import numpy as np

from jaxmech.compiler.backends.llvm.builder import Text, splat, type_of

PARTS = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)  # their sum is pi/2
LARGE = 1.5 * 2.0**52  # has no fraction, and is divisible by four
SINE = (
    1.58962301576546568060e-10,
    -2.50507477628578072866e-8,
    2.75573136213857245213e-6,
    -1.98412698295895385996e-4,
    8.33333333332211858878e-3,
    -1.66666666666666307295e-1,
)
COSINE = (
    -1.13585365213876817300e-11,
    2.08757008419747316778e-9,
    -2.75573141792967388112e-7,
    2.48015872888517045348e-5,
    -1.38888888888730564116e-3,
    4.16666666666665929218e-2,
)

_WHOLE = np.dtype(np.int64)


def sine_and_cosine(text: Text, x: str, dtype: np.dtype) -> tuple[str, str]:
    """Write sine and cosine of a vector x [rad]; float32 is computed in double precision."""
    if dtype == np.float32:
        many = [type_of(np.dtype(t), text.lanes) for t in (np.float32, np.float64)]
        wide = text.line(f"fpext {many[0]} {x} to {many[1]}")
        sine, cosine = (
            text.line(f"fptrunc {many[1]} {y} to {many[0]}") for y in _Pair(text).written(wide)
        )
        return sine, cosine
    return _Pair(text).written(x)


class _Pair:
    """The operations in double precision."""

    def __init__(self, text: Text) -> None:
        self.text, self.dtype = text, np.dtype(np.float64)
        self.kind, self.whole = (type_of(t, text.lanes) for t in (self.dtype, _WHOLE))

    def written(self, x: str) -> tuple[str, str]:
        number = self.number
        raised = self.fused(x, number(2 / np.pi), number(LARGE))
        k, r = self.op("fsub", raised, number(LARGE)), x
        for part in PARTS:
            r = self.fused(k, number(-part), r)
        z = self.op("fmul", r, r)
        rz = self.op("fmul", r, z)
        sine = self.op("fadd contract", r, self.times(rz, self.polynomial(SINE, z)))
        zz = self.op("fmul", z, z)
        cosine = self.op("fsub contract", number(1.0), self.times(number(0.5), z))
        cosine = self.op("fadd contract", cosine, self.times(zz, self.polynomial(COSINE, z)))
        return self.turned(raised, sine, cosine)

    def turned(self, raised: str, sine: str, cosine: str) -> tuple[str, str]:
        """Rotate by the quadrant in the last two bits: swap sine and cosine, and change signs."""
        text, dtype = self.text, self.dtype
        quarters = self.bits(raised)
        odd = self.with_whole("icmp ne", self.with_whole("and", quarters, 1), 0)
        s = text.select(odd, cosine, sine, dtype)
        c = text.select(odd, sine, cosine, dtype)
        return self.signed(s, quarters), self.signed(c, self.with_whole("add", quarters, 1))

    def signed(self, x: str, quarters: str) -> str:
        """Change the sign where the second-last bit is set."""
        sign = self.with_whole("and", self.with_whole("shl", quarters, 62), -(2**63))
        changed = self.text.line(f"xor {self.whole} {self.bits(x)}, {sign}")
        return self.text.line(f"bitcast {self.whole} {changed} to {self.kind}")

    def bits(self, x: str) -> str:
        return self.text.line(f"bitcast {self.kind} {x} to {self.whole}")

    def with_whole(self, operation: str, x: str, y: int) -> str:
        return self.text.line(f"{operation} {self.whole} {x}, {splat(self.text, y, _WHOLE)}")

    def fused(self, x: str, y: str, z: str) -> str:
        """x y + z, rounded once."""
        return self.text.intrinsic("fma", self.dtype, x, y, z)

    def polynomial(self, coefficients: Sequence[float], z: str) -> str:
        value = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            value = self.op("fadd contract", self.times(value, z), self.number(coefficient))
        return value

    def number(self, value: float) -> str:
        return splat(self.text, value, self.dtype)

    def times(self, x: str, y: str) -> str:
        return self.op("fmul contract", x, y)

    def op(self, operation: str, x: str, y: str) -> str:
        return self.text.line(f"{operation} {self.kind} {x}, {y}")
