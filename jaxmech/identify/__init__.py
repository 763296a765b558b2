"""Parameters from recordings: fitting, uncertainty, identifiability, checks of gradients."""

from jaxmech.identify.descent import Descent as Descent
from jaxmech.identify.fit import fit as fit
from jaxmech.identify.levenberg_marquardt import LevenbergMarquardt as LevenbergMarquardt
from jaxmech.identify.multistart import MultiStart as MultiStart
from jaxmech.identify.recording import Recording as Recording
from jaxmech.identify.result import Fit as Fit
from jaxmech.identify.shooting import Shooting as Shooting
from jaxmech.identify.transforms import PhysicalInertia as PhysicalInertia
