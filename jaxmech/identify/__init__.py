"""Parameters from recordings: fitting, uncertainty, identifiability, checks of gradients."""

from jaxmech.identify.changes import Direction as Direction
from jaxmech.identify.combinations import Combinations as Combinations
from jaxmech.identify.combinations import combinations as combinations
from jaxmech.identify.descent import Descent as Descent
from jaxmech.identify.fit import fit as fit
from jaxmech.identify.fixing import Fixed as Fixed
from jaxmech.identify.formulas import Formula as Formula
from jaxmech.identify.gradient_check import check_gradients as check_gradients
from jaxmech.identify.gradient_report import GradientCheck as GradientCheck
from jaxmech.identify.growth import sensitivity_growth as sensitivity_growth
from jaxmech.identify.growth_report import Growth as Growth
from jaxmech.identify.identifiability import Identifiability as Identifiability
from jaxmech.identify.identifiability import identifiability as identifiability
from jaxmech.identify.levenberg_marquardt import LevenbergMarquardt as LevenbergMarquardt
from jaxmech.identify.multistart import MultiStart as MultiStart
from jaxmech.identify.recording import Recording as Recording
from jaxmech.identify.result import Estimate as Estimate
from jaxmech.identify.result import Fit as Fit
from jaxmech.identify.shooting import Shooting as Shooting
from jaxmech.identify.transforms import PhysicalInertia as PhysicalInertia
from jaxmech.identify.uncertainty import Uncertainty as Uncertainty
from jaxmech.identify.uncertainty import uncertainty as uncertainty
