"""The equations of motion for diffrax: `to_diffrax`, whose `solver` stays on the constraints."""

from jaxmech.interop.diffrax.to_diffrax import Diffrax as Diffrax
from jaxmech.interop.diffrax.to_diffrax import to_diffrax as to_diffrax
