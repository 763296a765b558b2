"""How results draw themselves: `jaxmech` enters here functions of `jaxmech.plot`."""

from collections.abc import Callable
from typing import Any

DRAWINGS: dict[str, Callable[..., Any]] = {}  # by the name of the class of the result
