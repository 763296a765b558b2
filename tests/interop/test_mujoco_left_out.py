"""What changes the motion of an MJCF file is taken over, or listed as left out."""

import functools
import re
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.interop.mujoco import IgnoredElementsWarning, from_mjcf
from jaxmech.interop.mujoco.source import USED, unused

mujoco = pytest.importorskip("mujoco", reason="MuJoCo is not installed: jaxmech[mujoco]")

MACROS = {"include", "worldbody", "frame", "replicate"}  # expanded before the schema counts
OF_MACROS = {"count", "offset", "sep", "passive"}  # and of earlier versions

BASE = """
<mujoco><compiler/>
  <option gravity="1 2 -9"><flag contact="disable"/></option>
  <worldbody>
    <body name="b" pos="0.1 0 0.2">
      <joint name="a" axis="0 1 0" pos="0.02 0.01 0.03" stiffness="3" damping="0.2" springref="20"/>
      <geom name="g" type="box" size="0.1 0.2 0.3"/>
      <body name="c" pos="0.3 0 0" gravcomp="0.4">
        <joint name="s" type="slide" axis="1 2 0" stiffness="4" damping="0.3"/>
        <inertial pos="0.05 -0.02 0.03" mass="1.3"
                  fullinertia="0.03 0.04 0.05 0.004 -0.003 0.002"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <general name="m" joint="a" gainprm="2 0.1 0.2" gaintype="affine" biastype="affine"
             biasprm="0.3 -1 -0.1" gear="1.5"/>
    <motor name="n" joint="s"/>
  </actuator>
</mujoco>"""
FLAGS = "actuation clampctrl constraint damper equality frictionloss gravity limit passive spring"
# Values of attributes that are used; a value may set further ones, as in "true range=-9,9". What
# geoms weigh, and how frames are turned, is computed by MuJoCo itself.
VALUES: dict[str, dict[str, str]] = {
    "option": {"actuatorgroupdisable": "0", "gravity": "3 1 2"},
    "flag": dict.fromkeys(FLAGS.split(), "disable"),
    "body": {"gravcomp": "0.7"},
    "joint": {
        "actuatorfrclimited": "true actuatorfrcrange=-0.1,0.1", "actuatorfrcrange": "-0.1 0.1",
        "armature": "0.3", "axis": "1 2 3", "damping": "0.5 0.4 0.3",
        "frictionloss": "0.5", "limited": "true range=-9,9", "pos": "0.3 0.2 0.1",
        "range": "-9 9", "ref": "30", "springdamper": "1 0.5", "springref": "50",
        "stiffness": "7 3 2", "type": "slide",
    },
    "general": {
        "biasprm": "1 2 3", "biastype": "none", "ctrllimited": "true ctrlrange=-0.5,0.5",
        "ctrlrange": "-0.5 0.5", "forcelimited": "true forcerange=-0.2,0.2",
        "forcerange": "-0.2 0.2", "gainprm": "4 3 2", "gaintype": "fixed", "gear": "2.5",
        "group": "3",
    },
}  # fmt: skip
PATHS = {
    "option": "option", "flag": "option/flag", "body": "worldbody/body",
    "joint": "worldbody/body/joint", "general": "actuator/general",
}  # fmt: skip


@functools.cache
def schema() -> dict[tuple[str, ...], tuple[str, ...]]:
    """The attributes of each element of MuJoCo's schema, by the path of the element."""
    elements: dict[tuple[str, ...], list[str]] = {}
    path: tuple[str, ...] = ()
    for line in mujoco.mj_printSchema(False, False).splitlines():
        if start := re.match(r"( *)(\S+) \(.\) *(.*)", line):
            depth, name = len(start[1]) // 3, start[2]
            path = (*path[:depth], name)
            elements[path] = start[3].split()
        else:
            elements[path] += line.split()
    full = {}
    for path, names in elements.items():
        if path[1:2] == ("(world)body",):
            path = ("mujoco", "worldbody", "body", *path[2:])
        full[path] = tuple(names)
    return full


def test_the_list_of_what_is_used_has_nothing_else() -> None:
    attributes = {name for names in schema().values() for name in names}
    assert {x for names in USED.values() for x in names.split()} - attributes <= OF_MACROS
    elements = {path[-1] for path in schema()}
    assert {key.rpartition("/")[2] for key in USED} - elements <= MACROS


def test_elements_and_attributes_that_are_not_used_are_listed(tmp_path: Path) -> None:
    (tmp_path / "more.xml").write_text(
        '<mujoco><body><geom friction="1" size="1"/></body></mujoco>'
    )
    xml = """<mujoco model="m"><option timestep="1"/><default><joint user="1"/></default>
    <worldbody><include file="more.xml"/><light pos="0 0 1"/></worldbody>
    <tendon><spatial width="1"><site site="x"/></spatial></tendon></mujoco>"""
    expected = "option timestep", "joint user", "geom friction", "light", "spatial width"
    assert unused(xml, tmp_path) == expected
    assert unused("<robot/>") == ()


def changed(element: str, name: str) -> str:
    """The model with another value of an attribute."""
    root = ET.fromstring(BASE)
    target = root.find(PATHS[element])
    assert target is not None
    value, *others = re.split(r" (?=\w+=)", VALUES[element][name])
    target.set(name, value)
    for other in others:
        key, _, further = other.partition("=")
        target.set(key, further.replace(",", " "))
    return ET.tostring(root, encoding="unicode")


def mujoco_state(xml: str) -> Any:
    """A random state of a model with its accelerations, and inputs of 1.3."""
    spec = mujoco.MjSpec.from_string(xml)
    spec.compiler.fusestatic = False
    model = spec.compile()
    data, rng = mujoco.MjData(model), np.random.default_rng(1)
    data.qpos[:] = model.qpos0 + 0.4 * rng.normal(size=model.nq)
    mujoco.mj_normalizeQuat(model, data.qpos)
    data.qvel[:] = rng.normal(size=model.nv)
    data.ctrl[:] = 1.3
    mujoco.mj_forward(model, data)
    return data


def accelerations(xml: str, data: Any, **options: Any) -> tuple[np.ndarray, Any]:
    """The accelerations of the mechanism in the terms of qvel, and what is ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredElementsWarning)
        robot = from_mjcf(xml, **options)
    system, params = robot.mechanism.system, dict(robot.mechanism.params)
    params |= {name: 1.3 for name in params if name.startswith("ctrl.")}
    q = robot.q(data.qpos)
    v = robot.v(q, data.qvel)
    qdd = jm.acceleration(system, q, v, 0.0, params).qdd
    rates = system.dynamics.speeds(q, v, jnp.zeros(()), params)
    return np.asarray(jax.jvp(robot.qvel, (q, v), (rates, qdd))[1]), robot.ignored


@pytest.mark.slow
@pytest.mark.parametrize(
    ("element", "name"), [(element, name) for element, names in VALUES.items() for name in names]
)
def test_what_is_taken_over_gives_the_accelerations_of_mujoco(element: str, name: str) -> None:
    if name not in schema()["mujoco", *PATHS[element].split("/")]:
        pytest.skip(f"the installed MuJoCo has no {element} {name}")
    xml = changed(element, name)
    data = mujoco_state(xml)
    qacc, ignored = accelerations(xml, data)
    if ignored:  # such as a polynomial, of which only the first coefficient is taken over
        assert {*ignored} <= {"nonlinear spring", "nonlinear damping", "joint limit"}
        return
    np.testing.assert_allclose(qacc, data.qacc, rtol=0, atol=1e-9 * np.abs(data.qacc).max())


INERTIA = """<inertial pos="0.05 -0.02 0.03" mass="1.3"
fullinertia="0.03 0.04 0.05 0.004 -0.003 0.002"/>"""
PAIR = f"""<mujoco>%s<worldbody><body name="b" gravcomp="1">
<joint name="a" axis="0 1 0" %s/>{INERTIA}
<body pos="0.3 0 0" gravcomp="0.5"><joint name="c" axis="1 2 0"/>{INERTIA}</body></body></worldbody>
%s</mujoco>"""
COUPLED = '<equality><joint joint1="a" joint2="c" polycoef="0 0.5"/></equality>'
MOTOR = '<actuator><motor name="m" joint="{}" group="1"/></actuator>'
NO_EQUALITY = '<option><flag equality="disable"/></option>'
NO_CONSTRAINT = '<option><flag constraint="disable"/></option>'
NO_GROUP = '<option actuatorgroupdisable="1"/>'
NOTHING_PASSIVE = '<option><flag spring="disable" damper="disable"/></option>'


@pytest.mark.parametrize(
    "xml",
    [
        pytest.param(xml, marks=[] if name in ("flag", "group") else pytest.mark.slow)
        for name, xml in {
            "flag": PAIR % (NO_EQUALITY, "", COUPLED),
            "all constraints": PAIR % (NO_CONSTRAINT, 'range="50 60" frictionloss="1"', COUPLED),
            "group": PAIR % (NO_GROUP, "", MOTOR.format("a")),
            "nothing passive": PAIR % (NOTHING_PASSIVE, "", ""),
        }.items()
    ],
)
def test_flags_groups_and_compensation_are_those_of_mujoco(xml: str) -> None:
    if NOTHING_PASSIVE in xml and "spring" not in schema()["mujoco", "option", "flag"]:
        pytest.skip("the installed MuJoCo has no such flags")
    data = mujoco_state(xml)
    qacc, _ = accelerations(xml, data, strict=True)
    np.testing.assert_allclose(qacc, data.qacc, rtol=0, atol=1e-8)


def test_weights_that_actuators_carry_are_listed() -> None:
    with pytest.warns(IgnoredElementsWarning, match="weight carried by actuators: a"):
        from_mjcf(PAIR % ("", 'actuatorgravcomp="true"', ""))


def test_a_parameter_carries_its_own_weight() -> None:
    xml = PAIR % ("", "", "")
    robot = from_mjcf(xml, params=("mass", "center"))
    system, params = robot.mechanism.system, robot.mechanism.params
    changed = {**params, "mass.b": 2.6, "center.b": (0.3, 0.2, 0.1)}
    q, rest, t = jnp.array([0.4, -0.3]), jnp.zeros(2), jnp.zeros(())

    def weight(params: Any) -> Any:
        return system.dynamics.conservative_force(q, rest, t, params)

    np.testing.assert_allclose(weight(changed), weight(params), atol=1e-12)
    uneven = xml.replace('<joint name="c" axis="1 2 0"/>', "")
    with pytest.raises(ValueError, match=r"'b'.*different `gravcomp`.*leave \"mass\" and"):
        from_mjcf(uneven, params=("mass",))
    assert from_mjcf(uneven, strict=True).ignored == {}


def test_actuators_may_have_several_inputs() -> None:
    several = '<actuator><pid name="p" joint="a" kp="2"/><motor name="m" joint="c"/></actuator>'
    xml = PAIR % ("", "", f'{several}<keyframe><key ctrl="1 2 3"/></keyframe>')
    try:
        places = mujoco.MjModel.from_xml_string(xml).actuator_ctrladr
    except ValueError:
        pytest.skip("the installed MuJoCo has no such actuators")
    with pytest.warns(IgnoredElementsWarning, match="actuator: p"):
        robot = from_mjcf(xml)
    assert places[1] == 2
    assert robot.keyframes["key0"].ctrl == {"ctrl.m": 3.0}
