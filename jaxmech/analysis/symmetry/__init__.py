"""`symmetries` of a system, and the `conserved` quantities that follow from them."""

from jaxmech.analysis.symmetry.conserved import Conserved as Conserved
from jaxmech.analysis.symmetry.conserved import Quantity as Quantity
from jaxmech.analysis.symmetry.conserved import conserved as conserved
from jaxmech.analysis.symmetry.symmetries import Symmetries as Symmetries
from jaxmech.analysis.symmetry.symmetries import symmetries as symmetries
