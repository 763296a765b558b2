"""The `symmetries` of a system, and what is `conserved` because of them."""

from jaxmech.analysis.symmetry.conserved import Conserved as Conserved
from jaxmech.analysis.symmetry.conserved import Quantity as Quantity
from jaxmech.analysis.symmetry.conserved import conserved as conserved
from jaxmech.analysis.symmetry.symmetries import Symmetries as Symmetries
from jaxmech.analysis.symmetry.symmetries import symmetries as symmetries
