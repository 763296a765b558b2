"""States on the constraints.

`assemble` finds the one that is nearest to a guess, by one search for traced and known numbers
(`nearest`). `stabilization` keeps a motion on the constraints.
"""

from jaxmech.state.assemble import Start as Start
from jaxmech.state.assemble import assemble as assemble
from jaxmech.state.assemble import begin as begin
from jaxmech.state.assemble import onto as onto
from jaxmech.state.nearest import some_direction as some_direction
from jaxmech.state.stabilization import AbstractStabilization as AbstractStabilization
from jaxmech.state.stabilization import Baumgarte as Baumgarte
from jaxmech.state.stabilization import Free as Free
from jaxmech.state.stabilization import Projection as Projection
from jaxmech.state.stabilization import RowsBefore as RowsBefore
from jaxmech.state.stabilization import coordinate_metric as coordinate_metric
from jaxmech.state.stabilization import metric_mass as metric_mass
