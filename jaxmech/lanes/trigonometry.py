"""Sine and cosine of the same argument as a pair of polynomials.

The functions of the C library take one number at a time. Here x is reduced by the nearest multiple
of pi/2, held in three parts so that the products with the multiple are exact (Cody and Waite 1980),
and the minimax polynomials of Cephes (Moshier 1989, `sin.c`) give both on [-pi/4, pi/4]. The
reduction is exact for |x| < 1.7e12.
"""

from collections.abc import Sequence

import numpy as np

from jaxmech.lanes.text import Text, splat, type_of

# pi/2 in three parts; the first two have 33 bits, so 20 bits times one of them is exact.
PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
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


def sine_and_cosine(text: Text, x: str, dtype: np.dtype) -> tuple[str, str]:
    """Writes both of a vector x of angles [rad]; float32 goes through double precision."""
    if dtype == np.float32:
        many = [type_of(np.dtype(t), text.lanes) for t in (np.float32, np.float64)]
        wide = text.line(f"fpext {many[0]} {x} to {many[1]}")
        sine, cosine = (
            text.line(f"fptrunc {many[1]} {y} to {many[0]}") for y in _Pair(text).written(wide)
        )
        return sine, cosine
    return _Pair(text).written(x)


class _Pair:
    """The operations, one by one, in double precision."""

    def __init__(self, text: Text) -> None:
        self.text, self.dtype = text, np.dtype(np.float64)
        self.kind = type_of(self.dtype, text.lanes)

    def written(self, x: str) -> tuple[str, str]:
        number, fn = self.number, self.text.intrinsic
        k = fn("rint", self.dtype, self.op("fmul", x, number(2 / np.pi)))
        high = fn("rint", self.dtype, self.op("fmul", k, number(2.0**-20)))
        high = self.op("fmul", high, number(2.0**20))
        low = self.op("fsub", k, high)
        r = x
        for part, multiple in ((0, high), (0, low), (1, high), (1, low), (2, k)):
            r = self.op("fsub", r, self.op("fmul", multiple, number(PARTS[part])))
        z = self.op("fmul", r, r)
        rz = self.op("fmul", r, z)
        sine = self.op("fadd contract", r, self.times(rz, self.polynomial(SINE, z)))
        zz = self.op("fmul", z, z)
        cosine = self.op("fsub contract", number(1.0), self.times(number(0.5), z))
        cosine = self.op("fadd contract", cosine, self.times(zz, self.polynomial(COSINE, z)))
        return self.turned(k, sine, cosine)

    def turned(self, k: str, sine: str, cosine: str) -> tuple[str, str]:
        text, dtype = self.text, self.dtype
        turns = text.intrinsic("floor", dtype, self.op("fmul", k, self.number(0.25)))
        quarter = self.op("fsub", k, self.op("fmul", turns, self.number(4.0)))  # 0, 1, 2 or 3
        first, third = (
            self.op("fcmp oeq", quarter, self.number(1.0)),
            self.op("fcmp oeq", quarter, self.number(3.0)),
        )
        second = self.op("fcmp oeq", quarter, self.number(2.0))
        odd, sine_down, cosine_down = (
            text.line(f"or <{text.lanes} x i1> {one}, {other}")
            for one, other in ((first, third), (second, third), (first, second))
        )
        s = text.select(odd, cosine, sine, dtype)
        c = text.select(odd, sine, cosine, dtype)
        s = text.select(sine_down, text.line(f"fneg {self.kind} {s}"), s, dtype)
        c = text.select(cosine_down, text.line(f"fneg {self.kind} {c}"), c, dtype)
        return s, c

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
