"""Sine and cosine of the same argument as a pair of polynomials.

The functions of the C library accept one number at a time. Here x is reduced by the nearest
multiple of pi/2, stored in three parts: a fused multiply-add rounds once, and subtracting the
multiple of the first part is exact (Boldo, Daumas and Li 2009). The minimax polynomials of Cephes
(Moshier 1989, `sin.c` and `sinf.c`) give both on [-pi/4, pi/4]. The multiple is rounded to an
integer by adding a number too large to have a fraction; the last two bits of the sum are the
quadrant. So |x| must be below 2^51.

float32 is computed in double precision, on a CPU. On a GPU it is computed in single precision, and
above 10^5 x is reduced by integers (Payne and Hanek 1983): x is m 2^E with a whole number m of 24
bits, and 2^E times 2/pi is in a table, without its multiples of four.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from jaxmech.compiler.backends.llvm.builder import AssemblyBuilder, splat, type_of

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


class _Constants(NamedTuple):
    """The constants of one precision."""

    integer: np.dtype  # integers of the same size
    parts: Sequence[float]
    large: float
    sine: Sequence[float]
    cosine: Sequence[float]


_DOUBLE = _Constants(np.dtype(np.int64), PARTS, LARGE, SINE, COSINE)
_SINGLE = _Constants(
    np.dtype(np.int32),
    (1.57079637, -4.37113883e-8, -1.71512451e-15),
    1.5 * 2.0**23,
    (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
)
_REDUCED = 1e5  # largest |x| in single precision that is reduced by fused multiply-adds
_LEAST = -7  # the smallest E above it
# 2/pi to 256 bits.
_TWO_OVER_PI = 0xA2F9836E_4E441529_FC2757D1_F534DDC0_DB629599_3C439041_FE5163AB_DEBBC561


def sine_and_cosine(builder: AssemblyBuilder, x: str, dtype: np.dtype) -> tuple[str, str]:
    """Write sine and cosine of a vector x [rad]."""
    if dtype == np.float32 and builder.on_gpu:
        return _Pair(builder, dtype, _SINGLE).written(x)
    if dtype == np.float32:
        vector_types = [type_of(np.dtype(t), builder.lanes) for t in (np.float32, np.float64)]
        wide = builder.line(f"fpext {vector_types[0]} {x} to {vector_types[1]}")
        sine, cosine = (
            builder.line(f"fptrunc {vector_types[1]} {y} to {vector_types[0]}")
            for y in _Pair(builder, np.dtype(np.float64), _DOUBLE).written(wide)
        )
        return sine, cosine
    return _Pair(builder, dtype, _DOUBLE).written(x)


class _Pair:
    """The operations in one precision."""

    def __init__(self, builder: AssemblyBuilder, dtype: np.dtype, constants: _Constants) -> None:
        self.builder, self.dtype, self.constants = builder, dtype, constants
        self.kind, self.integer = (type_of(t, builder.lanes) for t in (dtype, constants.integer))

    def written(self, x: str) -> tuple[str, str]:
        number, constants = self.number, self.constants
        raised = self.fused(x, number(2 / np.pi), number(constants.large))
        # Exact: `raised` has no fraction, and neither has `large`.
        k, r = self.op("fsub", raised, number(constants.large)), x
        for part in constants.parts:
            r = self.fused(k, number(-part), r)
        if self.dtype == np.float32:
            r, quarters = self.reduced_by_integers(x, r, self.bits(raised))
        z = self.op("fmul", r, r)
        rz = self.op("fmul", r, z)
        sine = self.times_plus(rz, self.polynomial(constants.sine, z), r)
        zz = self.op("fmul", z, z)
        cosine = self.times_plus(number(-0.5), z, number(1.0))
        cosine = self.times_plus(zz, self.polynomial(constants.cosine, z), cosine)
        if self.dtype == np.float64:
            quarters = self.bits(raised)
        return self.in_quadrant(quarters, sine, cosine)

    def reduced_by_integers(self, x: str, r: str, quarters: str) -> tuple[str, str]:
        """Reduce x where it is large and finite, to the distance from a multiple of pi/2."""
        builder = self.builder
        size = builder.intrinsic("fabs", self.dtype, x)
        beyond = builder.line(f"fcmp ogt float {size}, {self.number(_REDUCED)}")
        finite = builder.line(f"fcmp olt float {size}, {self.number(np.inf)}")
        is_reduced = builder.line(f"and i1 {beyond}, {finite}")
        with builder.branch(is_reduced, [("float", r), ("i32", quarters)]) as (merged, ends):
            bits = self.bits(x)
            exponent = builder.line(f"lshr i32 {self.bits(size)}, 23")
            position = builder.line(f"sub i32 {exponent}, {150 + _LEAST}")
            m = builder.line(f"or i32 {builder.line(f'and i32 {bits}, {2**23 - 1}')}, {2**23}")
            address = builder.line(
                f"getelementptr inbounds i128, ptr {_fractions(builder)}, i32 {position}"
            )
            quotient = builder.line(f"load i128, ptr {address}")
            # x 2/pi modulo 4 in units of 2^-126; 128 bits wrap around at 4. The upper half is in
            # units of 2^-62: two bits of quarters, then the fraction, more than float32 can hold.
            product = builder.line(f"mul i128 {builder.line(f'zext i32 {m} to i128')}, {quotient}")
            high = builder.line(f"trunc i128 {builder.line(f'lshr i128 {product}, 64')} to i64")
            # Rounded to nearest, so that the rest is within pi/4 on either side.
            nearest = builder.line(f"lshr i64 {builder.line(f'add i64 {high}, {2**61}')}, 62")
            remainder = builder.line(f"sub i64 {high}, {builder.line(f'shl i64 {nearest}, 62')}")
            angle = builder.line(f"sitofp i64 {remainder} to float")
            angle = self.op("fmul", angle, self.number(np.pi / 2**63))
            turns = builder.line(f"trunc i64 {nearest} to i32")
            is_negative = builder.line(f"icmp slt i32 {bits}, 0")
            ends.append(
                builder.select(is_negative, builder.line(f"fneg float {angle}"), angle, self.dtype)
            )
            minus = builder.line(f"sub i32 0, {turns}")
            ends.append(builder.select(is_negative, minus, turns, self.constants.integer))
        return merged[0], merged[1]

    def in_quadrant(self, quarters: str, sine: str, cosine: str) -> tuple[str, str]:
        """Rotate by the quadrant in the last two bits: swap sine and cosine, and change signs."""
        builder, dtype = self.builder, self.dtype
        odd = self.with_integer("icmp ne", self.with_integer("and", quarters, 1), 0)
        s = builder.select(odd, cosine, sine, dtype)
        c = builder.select(odd, sine, cosine, dtype)
        return self.signed(s, quarters), self.signed(c, self.with_integer("add", quarters, 1))

    def signed(self, x: str, quarters: str) -> str:
        """Change the sign where the second-last bit is set."""
        top = 8 * self.dtype.itemsize - 1
        sign = self.with_integer("and", self.with_integer("shl", quarters, top - 1), -(2**top))
        changed = self.builder.line(f"xor {self.integer} {self.bits(x)}, {sign}")
        return self.builder.line(f"bitcast {self.integer} {changed} to {self.kind}")

    def bits(self, x: str) -> str:
        return self.builder.line(f"bitcast {self.kind} {x} to {self.integer}")

    def with_integer(self, operation: str, x: str, y: int) -> str:
        return self.builder.line(
            f"{operation} {self.integer} {x}, {splat(self.builder, y, self.constants.integer)}"
        )

    def fused(self, x: str, y: str, z: str) -> str:
        """x y + z, rounded once."""
        return self.builder.intrinsic("fma", self.dtype, x, y, z)

    def polynomial(self, coefficients: Sequence[float], z: str) -> str:
        value = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            value = self.times_plus(value, z, self.number(coefficient))
        return value

    def number(self, value: float) -> str:
        return splat(self.builder, value, self.dtype)

    def times_plus(self, x: str, y: str, z: str) -> str:
        """x y + z, rounded once where the processor can."""
        if self.builder.has_fma:
            return self.fused(x, y, z)
        return self.op("fadd", self.op("fmul", x, y), z)

    def op(self, operation: str, x: str, y: str) -> str:
        return self.builder.line(f"{operation} {self.kind} {x}, {y}")


def _fractions(builder: AssemblyBuilder) -> str:
    """A table of 2^E times 2/pi without multiples of four, in units of 2^-126."""
    exponents = range(_LEAST, 255 - 150)
    bits = [int(Fraction(2) ** (E + 126 - 256) * _TWO_OVER_PI) % 2**128 for E in exponents]
    items = ", ".join(f"i128 {x}" for x in bits)
    table = f"@fractions = internal constant [{len(bits)} x i128] [{items}]"
    if table not in builder.tables:
        builder.tables.append(table)
    return "@fractions"
