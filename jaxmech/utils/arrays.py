"""Names for arrays that are not traced, and for those that may be."""

from typing import Any

from numpy.typing import NDArray

HostArray = NDArray[Any]  # of known numbers, in numpy
AnyArray = Any  # a JAX array, or a numpy array where all entries are plain numbers
