"""All laws of motion of the package, the reference first."""

from jaxmech.laws import (
    LDL,
    QR,
    SVD,
    Contravariant,
    CoordinatePartition,
    GaussPrinciple,
    LagrangeFirstKind,
    Maggi,
    UdwadiaKalaba,
)

LAWS = (
    UdwadiaKalaba(SVD()),
    UdwadiaKalaba(LDL()),
    UdwadiaKalaba(QR()),
    LagrangeFirstKind(),
    GaussPrinciple(),
    Maggi(),
    CoordinatePartition(),
    Contravariant(),
    Contravariant(eliminate=True),
)
