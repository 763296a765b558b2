"""What functions read besides their arguments, as a part of the keys of compiled programs.

A program contains the numbers that its functions read when they were traced: attributes of an
object, variables of an enclosing function, global variables, arrays. Any of them can change, and
a method of a changed object still equals the method of before.

`captures` finds the locations that such numbers are read from, once for each object, and compares
their contents in each call; `walk` goes through all that functions can reach,
except for modules that are installed, and so taken as constant.
"""

from jaxmech.utils.captures.captures import UNCHANGING as UNCHANGING
from jaxmech.utils.captures.captures import Captures as Captures
from jaxmech.utils.captures.captures import captures_of as captures_of
