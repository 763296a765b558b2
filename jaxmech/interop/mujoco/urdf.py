"""What MuJoCo accepts in a URDF file without a word: several roots, and unknown elements."""

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from jaxmech.utils.text import capital

_KNOWN = {  # the elements within each one that has any
    "robot": {"gazebo", "joint", "link", "material", "mujoco", "transmission"},
    "link": {"collision", "inertial", "visual"},
    "joint": {
        "axis",
        "calibration",
        "child",
        "dynamics",
        "limit",
        "mimic",
        "origin",
        "parent",
        "safety_controller",
    },
    "inertial": {"inertia", "mass", "origin"},
}


def require_one_root(xml: str, source_name: str) -> None:
    """Raise for a URDF file whose links are no single tree.

    Args:
        xml: the text of a file; one that is no URDF file is left to MuJoCo.
        source_name: words for the file, such as "the file 'arm.urdf'".
    """
    robot = _robot(xml)
    if robot is None:
        return
    links = [link.get("name", "") for link in robot.iterfind("link")]
    children = {child.get("link", "") for child in robot.iterfind("joint/child")}
    roots = [name for name in links if name not in children]
    if len(roots) == 1 or not links:
        return
    fault = f"it has {', '.join(roots)}; connect them by joints, fixed ones if need be"
    if not roots:
        fault = "every link is the child of a joint; leave out the joint that leads to the root"
    raise ValueError(f"{capital(source_name)} must have one root link, but {fault}.")


def unknown_elements(xml: str) -> tuple[str, ...]:
    """The elements of a URDF file that mean nothing in it, such as "joint/spring"; each once.

    Example:
        >>> unknown_elements("<robot name='arm'><link name='base'/><sensor/></robot>")
        ('robot/sensor',)
    """
    robot = _robot(xml)
    return () if robot is None else tuple(dict.fromkeys(_unknown(robot)))


def _unknown(element: ET.Element) -> Iterator[str]:
    attributes = _KNOWN.get(element.tag)
    if attributes is None:
        return
    for inner in element:
        if inner.tag in attributes:
            yield from _unknown(inner)
        else:
            yield f"{element.tag}/{inner.tag}"


def _robot(xml: str) -> ET.Element | None:
    """The root of a URDF file; None if the text is another one."""
    try:
        root = ET.fromstring(xml)
    except ET.ParseError:  # MuJoCo says where
        return None
    return root if root.tag == "robot" else None
