"""Names of arrays: each is a folder of the run folder, and a variable of the dataset."""

_SEPARATORS = "/\\"  # of a path, which would make an array of an array
_LONGEST = 200  # bytes; file systems allow 255, some of which endings such as "_count" need
_RESERVED = ("", ".", "..", "zarr.json")


def name_problem(name: str) -> str:
    r"""What is wrong with a name that a study gives to an array, empty if nothing is.

    Example:
        >>> name_problem("tip.x"), name_problem("a/b")
        ('', 'must be a name without /, \\ and control characters, since it is that of a file')
    """
    if name in _RESERVED or name.startswith("__"):
        return 'must be another name: "", ".", "..", "zarr.json" and "__..." are reserved'
    if not name.isprintable() or any(separator in name for separator in _SEPARATORS):
        return "must be a name without /, \\ and control characters, since it is that of a file"
    if len(name.encode()) > _LONGEST:
        return f"must be a name of at most {_LONGEST} bytes, since it is that of a file"
    return ""


def array_name(name: str) -> str:
    """The name of the array of a quantity that a model names, with points in place of slashes.

    Example:
        >>> array_name("parameter_mass.left/forearm")
        'parameter_mass.left.forearm'
    """
    return "".join("." if character in _SEPARATORS else character for character in name)
