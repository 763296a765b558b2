"""What becomes of each element and attribute of MJCF, in one table.

An attribute is taken over (USED), does nothing to a rigid motion without contacts (INERT, such as
those of pictures, sensors, solvers and softness), or belongs to a kind of things that are left out,
such as "joint limit".
`KINDS` says by which fields of a compiled model those kinds are seen; of the others, without
fields, the readers add the names. A test compares the table with the schema of the installed
MuJoCo, and `unknown_attributes` finds what newer versions have in addition.

The functions after the table give things names, and list what a model has that has no counterpart
in a mechanism of hard constraints.
"""

from collections.abc import Container, Iterator, Sequence
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from jaxmech.interop.mujoco.source import is_any, mujoco

USED, INERT = "used", "inert"
NEWEST = "4.0"  # the newest MuJoCo whose schema the table has

KINDS: dict[str, tuple[str, ...]] = {  # the fields that are not zero where something is left out
    "actuator": (
        "actuator_armature",
        "actuator_damping",
        "actuator_dampingpoly",
        "actuator_delay",
    ),
    "contact": (),
    "distance equality": (),
    "equality that is switched off": (),
    "equality within one body": (),
    "flex equality": (),
    "flexstrain equality": (),
    "flexvert equality": (),
    "flex": ("nflex",),
    "fluid": ("opt.density", "opt.viscosity"),
    "joint limit": ("jnt_limited",),
    "mocap": (),
    "nonlinear damping": ("dof_dampingpoly",),
    "nonlinear spring": ("jnt_stiffnesspoly",),
    "plastic spring": ("jnt_springyield",),
    "plugin": ("nplugin",),
    "sleep": (),
    "spring of a ball or free joint": (),
    "tendon equality": (),
    "tendon": ("ntendon",),
    "tendon around geoms": (),
    "tendon with pulleys": (),
    "unknown attribute": (),
    "unknown element": (),
}

_POSE = "axisangle euler pos quat xyaxes zaxis"
_ACTUATORS = (
    "adhesion cylinder damper dcmotor general intvelocity motor muscle orientation pid plugin "
    "position velocity"
)
ROWS: dict[str, dict[str, str]] = {
    # parent/elements: what becomes of them, with attributes
    "mujoco": {INERT: "model"},
    "mujoco/compiler": {
        USED: "alignfree angle autolimits balanceinertia boundinertia boundmass coordinate "
        "eulerseq fitaabb fusestatic inertiafromgeom inertiagrouprange settotalmass "
        "assetdir meshdir strippath conflict",
        INERT: "discardvisual passthrough savecanonical savecompiled saveinertial texturedir "
        "usethread",
    },
    "compiler/lengthrange": {
        "actuator": "accel interval inttotal maxforce mode timeconst timestep tolrange useexisting "
        "uselimit",
    },
    "mujoco/option": {
        USED: "actuatorgroupdisable gravity",
        INERT: "ccd_iterations ccd_tolerance cone impratio integrator iterations jacobian "
        "ls_iterations ls_tolerance magnetic noslip_iterations noslip_tolerance o_friction "
        "o_margin o_solimp o_solref sdf_initpoints sdf_iterations sleep_tolerance solver timestep "
        "tolerance apirate",
        "fluid": "density viscosity wind",
    },
    "option/flag": {
        USED: "actuation clampctrl constraint contact damper equality frictionloss gravity limit "
        "passive spring",
        INERT: "autoreset diagexact energy eulerdamp filterparent fwdinv invdiscrete ipc island "
        "midphase multiccd nativeccd override refsafe sensor speculative warmstart",
        "sleep": "sleep",
    },
    "mujoco/size": {INERT: "*"},
    "mujoco/statistic": {INERT: "*"},
    "mujoco/visual": {INERT: "*"},
    "mujoco/sensor": {INERT: "*"},
    "mujoco/custom": {INERT: "*"},
    "mujoco/include": {USED: "file"},
    "mujoco/default": {USED: "class"},
    "mujoco/extension": {},
    "extension/plugin": {"plugin": "*"},
    "mujoco/asset": {},
    "asset/mesh": {
        USED: "builtin class content_type face file inertia name params refpos refquat scale "
        "vertex",
        INERT: "material maxhullvert normal smoothnormal texcoord",
    },
    "mesh/plugin": {"plugin": "*"},
    "asset/hfield": {INERT: "*"},
    "asset/material skin texture": {INERT: "*"},
    "asset/model": {USED: "content_type file name"},
    "mujoco/worldbody": {},
    "body/body": {
        USED: f"{_POSE} childclass fuse gravcomp name simple",
        INERT: "user",
        "mocap": "mocap",
        "sleep": "sleep",
    },
    "body/inertial": {USED: f"{_POSE} diaginertia fullinertia mass"},
    "body/joint": {
        USED: "actuatorfrclimited actuatorfrcrange actuatorgravcomp armature axis class damping "
        "frictionloss name pos ref springdamper springref stiffness type",
        INERT: "group solimpfriction solreffriction user",
        "joint limit": "limited margin range solimplimit solreflimit",
        "nonlinear damping": "damping",
        "nonlinear spring": "stiffness",
        "plastic spring": "springyield",
        "spring of a ball or free joint": "stiffness",
    },
    "body/freejoint": {USED: "align name", INERT: "group"},
    "body/geom": {
        USED: f"{_POSE} class density fitscale fromto group hfield mass mesh name shellinertia "
        "size type",
        INERT: "castshadow material rgba user",
        "contact": "adhesion conaffinity condim contype friction gap margin priority solimp solmix "
        "solref surfacevel",
        "fluid": "fluidcoef fluidshape",
    },
    "geom/plugin": {"plugin": "*"},
    "body/attach": {USED: "body frame model prefix"},
    "body/frame": {USED: f"{_POSE} childclass name"},
    "body/replicate": {USED: "count euler offset sep"},
    "body/composite": {USED: "*"},
    "body/site": {
        USED: f"{_POSE} class fromto name",
        INERT: "group material mesh rgba size type user",
    },
    "body/camera light": {INERT: "*"},
    "body/plugin": {"plugin": "*"},
    "body/flexcomp": {"flex": "*"},
    "mujoco/deformable": {},
    "deformable/flex": {"flex": "*"},
    "deformable/skin": {INERT: "*"},
    "mujoco/contact": {},
    "contact/pair": {
        "contact": "adhesion class condim friction gap geom1 geom2 margin name solimp solref "
        "solreffriction",
    },
    "contact/exclude": {"contact": "body1 body2 name"},
    "mujoco/tendon": {},
    "tendon/fixed spatial": {"tendon": "*"},
    "mujoco/equality": {},
    "equality/connect joint weld": {
        USED: "active anchor body1 body2 class joint1 joint2 name polycoef relpose site1 site2",
        INERT: "solimp solref torquescale",
        "equality that is switched off": "active",
        "equality within one body": "body1 body2",
    },
    "equality/distance": {"distance equality": "*"},
    "equality/flex": {"flex equality": "*"},
    "equality/flexstrain": {"flexstrain equality": "*"},
    "equality/flexvert": {"flexvert equality": "*"},
    "equality/tendon": {"tendon equality": "*"},
    "mujoco/actuator": {},
    f"actuator/{_ACTUATORS}": {
        USED: "biasprm biastype class ctrllimited ctrlrange dampratio forcelimited forcerange "
        "gainprm gaintype gear group inheritrange joint jointinparent kp kv name",
        INERT: "interp lengthrange user",
        "actuator": "actdim actearly actlimited actrange area armature bias biastype body cogging "
        "controller cranklength cranksite damping delay diameter dynprm dyntype ffrange force "
        "fpmax fvmax gain gaintype imax inductance input instance ki lmax lmin lugre motorconst "
        "nominal nsample plugin posrange range refsite resistance saturation scale site slewmax "
        "slidersite tausmooth tendon thermal timeconst velrange vmax",
    },
    "plugin/config": {"plugin": "*"},
    "mujoco/keyframe": {},
    "keyframe/key": {USED: "ctrl name qpos qvel", INERT: "act mpos mquat plastic time"},
}
_DEFAULTS = {  # of the elements below <default>
    **dict.fromkeys(("camera", "geom", "joint", "light", "site"), "body"),
    **dict.fromkeys(("material", "mesh", "texture"), "asset"),
    **dict.fromkeys(_ACTUATORS.split(), "actuator"),
    "default": "mujoco",
    "equality": "equality",
    "pair": "contact",
    "tendon": "tendon",
}


def _table() -> dict[str, dict[str, set[str]]]:
    """The verdicts on each attribute of each element, by "parent/element" and attribute."""
    table: dict[str, dict[str, set[str]]] = {}
    for row, verdicts in ROWS.items():
        parent, _, elements = row.rpartition("/")
        for element in elements.split():
            attributes: dict[str, set[str]] = table.setdefault(f"{parent}/{element}", {})
            for verdict, names in verdicts.items():
                for name in names.split():
                    attributes.setdefault(name, set()).add(verdict)
    table["equality/equality"] = table["equality/connect"]
    table["tendon/tendon"] = table["tendon/fixed"]
    return table


TABLE = _table()


def verdicts(path: tuple[str, ...], attribute: str = "") -> frozenset[str]:
    """What becomes of an attribute, or of an element; empty if the table does not have it.

    Args:
        path: the elements from the root, such as ("mujoco", "worldbody", "body", "joint").
        attribute: name of the attribute.

    Example:
        >>> sorted(verdicts(("mujoco", "worldbody", "body", "joint"), "stiffness"))[:2]
        ['nonlinear spring', 'spring of a ball or free joint']
    """
    attributes: dict[str, set[str]] = {}
    for size in range(1, len(path) + 1):  # from the root: "*" is for all that is inside
        key = _key(path[:size])
        if key not in TABLE:
            return frozenset()
        attributes = TABLE[key]
        if "*" in attributes:
            return frozenset(attributes["*"])
    return frozenset(attributes.get(attribute, ()) if attribute else {USED})


def _key(path: tuple[str, ...]) -> str:
    """The row of an element; those inside of bodies, and those of defaults, have one row each."""
    parent, element = ("", *path)[-2:]
    if parent in ("worldbody", "frame", "replicate"):
        parent = "body"
    if parent == "default":
        parent = _DEFAULTS.get(element, parent)
    return f"{parent}/{element}"


def fields_of(kind: str) -> tuple[str, ...]:
    """The fields of a compiled model by which a kind is seen; KeyError for another kind."""
    return KINDS[kind]


def unknown_attributes(xml: str) -> tuple[str, ...]:
    """The attributes in the text of an MJCF file that the table does not have, each once.

    Example:
        >>> unknown_attributes('<mujoco><worldbody><body hue="1" name="a"/></worldbody></mujoco>')
        ('body hue',)
    """
    root = ET.fromstring(xml)
    return tuple(dict.fromkeys(_unknown(root, (root.tag,))))


def _unknown(element: ET.Element, path: tuple[str, ...]) -> Iterator[str]:
    if not verdicts(path):
        yield element.tag
        return
    yield from (f"{element.tag} {name}" for name in element.attrib if not verdicts(path, name))
    for inner in element:
        yield from _unknown(inner, (*path, inner.tag))


def names_of(model: Any, kind: str, count: int, taken: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of all objects of a kind, such as "joint"; new ones where a name is missing.

    Args:
        model: the compiled model.
        kind: kind of the objects, as in MuJoCo's `mjtObj`.
        count: number of objects.
        taken: names that must not be used; an object with one of them gets a trailing underscore.
    """
    number = getattr(mujoco().mjtObj, f"mjOBJ_{kind.upper()}")
    file_names = [mujoco().mj_id2name(model, number, k) for k in range(count)]
    reserved = {*taken}
    names = []
    for k, name in enumerate(file_names):
        name = name or _new(f"{kind}{k}", {*file_names, *reserved})
        while name in reserved:
            name += "_"
        reserved.add(name)
        names.append(name)
    return tuple(names)


def inputs_of(model: Any) -> dict[str, int]:
    """The names of all actuators, each with the index of its first input in MuJoCo's ctrl."""
    # Since MuJoCo 4 an actuator may have several inputs.
    addresses = getattr(model, "actuator_ctrladr", range(model.nu))
    names = names_of(model, "actuator", len(addresses))
    return dict(zip(names, map(int, addresses), strict=True))


def _new(name: str, reserved: set[str | None]) -> str:
    while name in reserved:
        name += "_"
    return name


def is_on(flag: str, model: Any) -> bool:
    """Whether a model does not disable something, such as "gravity".

    Springs and dampers once were one flag. Without constraints there are no equalities, limits,
    contacts and friction either.
    """
    bits = mujoco().mjtDisableBit
    passive = getattr(bits, "mjDSBL_PASSIVE", 0)
    bit = int(getattr(bits, f"mjDSBL_{flag.upper()}", passive))
    if flag in ("equality", "limit", "contact", "frictionloss"):
        bit |= int(bits.mjDSBL_CONSTRAINT)
    return not int(model.opt.disableflags) & bit


class LeftOut:
    """Names of what is left out, by kind, in the words of the table in `schema`."""

    def __init__(self) -> None:
        self.kinds: dict[str, list[str]] = {}

    def add(self, kind: str, name: str) -> None:
        """Add the name of something; KeyError for a kind that the table does not have."""
        fields_of(kind)
        names = self.kinds.setdefault(kind, [])
        if name not in names:
            names.append(name)

    def frozen(self) -> dict[str, tuple[str, ...]]:
        """The names by kind."""
        return {kind: tuple(names) for kind, names in self.kinds.items()}


def add_model(
    left_out: LeftOut, model: Any, spec: Any, bodies: Any, joints: Any,
    taken: Container[tuple[str, str]] = (),
) -> None:  # fmt: skip
    """List contacts, limits, tendons and the like of a model with names of bodies and joints.

    Pairs of a kind and a name that are `taken` over as limits are not listed.
    """
    if is_on("contact", model):
        _add_contacts(left_out, spec, bodies)
    of_dofs = [joints[j] for j in model.dof_jntid]
    names = {"jnt": joints, "dof": of_dofs, "actuator": [*inputs_of(model)]}
    for kind, fields in KINDS.items():
        if kind == "joint limit" and not is_on("limit", model):
            continue
        for field in fields:
            for k, name in enumerate(_names(model, field, names)):
                if (kind, name) not in taken:
                    left_out.add(_tendon_kind(model, k) if kind == "tendon" else kind, name)
    _add_springs(left_out, model, joints)
    for k, name in enumerate(bodies):
        if model.body_mocapid[k] >= 0:
            left_out.add("mocap", name)
    sleeping = getattr(mujoco().mjtEnableBit, "mjENBL_SLEEP", 0)
    if int(model.opt.enableflags) & int(sleeping):
        left_out.add("sleep", "flag")


def _tendon_kind(model: Any, k: int) -> str:
    """The kind of a tendon, by what it runs round."""
    kinds, first = mujoco().mjtWrap, int(model.tendon_adr[k])
    wraps = model.wrap_type[first : first + int(model.tendon_num[k])]
    if any(is_any(wrap, kinds.mjWRAP_SPHERE, kinds.mjWRAP_CYLINDER) for wrap in wraps):
        return "tendon around geoms"
    if any(is_any(wrap, kinds.mjWRAP_PULLEY) for wrap in wraps):
        return "tendon with pulleys"
    return "tendon"


def _names(model: Any, field: str, names: dict[str, Any]) -> list[str]:
    """The names of everything for which a field, which not every version has, is not zero."""
    if field.startswith("opt."):
        option = field.removeprefix("opt.")
        return [option] if getattr(model.opt, option) else []
    if field.startswith("n"):  # a number of things
        kind = field.removeprefix("n")
        return [*names_of(model, kind, getattr(model, field, 0))]
    values = getattr(model, field, np.zeros(0))
    return [names[field.partition("_")[0]][k] for k, value in enumerate(values) if np.any(value)]


def _add_springs(left_out: LeftOut, model: Any, joints: Any) -> None:
    """List springs of balls and free joints."""
    kinds = mujoco().mjtJoint
    for j, name in enumerate(joints if is_on("spring", model) else ()):
        is_turning = is_any(model.jnt_type[j], kinds.mjJNT_BALL, kinds.mjJNT_FREE)
        if is_turning and np.any(model.jnt_stiffness[j]):
            left_out.add("spring of a ball or free joint", name)


def _add_contacts(left_out: LeftOut, spec: Any, names: Any) -> None:
    """List the bodies whose geoms may touch others, if there are at least two of them."""
    touching = [
        name
        for name, body in zip(names, spec.bodies, strict=True)
        if any(geom.contype or geom.conaffinity for geom in body.geoms)
    ]
    pair_names = [pair.name or f"{pair.geomname1} and {pair.geomname2}" for pair in spec.pairs]
    for name in (touching if len(touching) > 1 else []) + pair_names:
        left_out.add("contact", name)
