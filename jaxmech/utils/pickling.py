"""Whether functions can be pickled, and which package pickles."""

import inspect
import pickle
from typing import Any


def is_called_from(package: str) -> bool:
    """Whether a function of a package is being executed: picklers do not identify themselves."""
    frame = inspect.currentframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).split(".")[0] == package:
            return True
        frame = frame.f_back
    return False


def require_importable(name: str, part: Any) -> None:
    """Raise a PicklingError unless a part of a `System` can be pickled."""
    try:
        pickle.dumps(part)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise pickle.PicklingError(
            f"A System can be pickled only if its functions can, but {name} cannot: {error}; "
            "define the function with `def` at the top level of a module, not as a lambda or "
            "inside of another function, or pickle with `cloudpickle`."
        ) from error
