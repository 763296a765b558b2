"""Misuse of parts raises at once, with a message that names the part, the problem and a remedy.

The cases run in a process of their own: here every call is checked for types first.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SETUP = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jaxmech.parts import *
jax.config.update("jax_enable_x64", True)
bar, other = (planar_body(name, mass=1.0, inertia=0.1) for name in ("bar", "other"))
box, lid = (spatial_body(name, mass=1.0, inertia=(1, 1, 1)) for name in ("box", "lid"))
bob, o, oo = point_mass("bob", mass=1.0), (0, 0), (0, 0, 0)
hinge = revolute("A", ground, o, bar, (1, 0))
pendulum = Mechanism([bar], [hinge], coordinates="bodies")
"""

MISUSE = {
    # joints
    "revolute('A', ground, o, box, oo)": (
        "ValueError: Revolute joint 'A' must have 3 numbers in `at_a`, but has 2: (0, 0); give one "
        "for each direction."
    ),
    "revolute('A', bar, o, box, oo)": (
        "ValueError: Revolute joint 'A' must be between planar or spatial bodies, all of one kind, "
        "but 'bar' is planar, 'box' is spatial; make all bodies of one kind or use another joint."
    ),
    "knife_edge('E', box, o, along=(1, 0))": (
        "ValueError: Knife edge 'E' must be between planar bodies, all of one kind, but 'ground' "
        "is the ground, 'box' is spatial; make all bodies of one kind or use another joint."
    ),
    "spherical('S', ground, o, bar, o)": (
        "ValueError: Spherical joint 'S' must be between spatial bodies, all of one kind, but "
        "'ground' is the ground, 'bar' is planar; make all bodies of one kind or use another joint."
    ),
    "revolute('A', bar, o, bar, o)": (
        "ValueError: Revolute joint 'A' must be between different bodies, but has 'bar' and 'bar'."
    ),
    "revolute('A', 'bar', o, other, o)": (
        "TypeError: Revolute joint 'A' must be between bodies, but has 'bar'; make one by "
        "planar_body, spatial_body or point_mass, or take `ground`."
    ),
    "revolute('A', box, oo, lid, oo, axis=(0, 0, 0))": (
        "ValueError: Revolute joint 'A' must have a direction in `axis`, but all its components "
        "are zero; write for example (0.0, 0.0, 1.0)."
    ),
    "revolute('A', box, oo, lid, oo)": (
        "ValueError: Revolute joint 'A' must have an `axis` in space; write the direction on the "
        "first body, such as axis=(0, 0, 1)."
    ),
    "revolute('A', bar, o, other, o, axis=(0, 0, 1))": (
        "ValueError: Revolute joint 'A' must have no `axis` in the plane, where all axes are at "
        "right angles to it; leave it out."
    ),
    "weld('W', ground, o, bob, o)": (
        "ValueError: Weld 'W' must be between bodies with an attitude, but 'bob' is a point; make "
        "it a planar_body or a spatial_body."
    ),
    "distance('R', ground, o, bob, (1, 0), length=1)": (
        "ValueError: Distance 'R' must have zeros in `at_b`, since 'bob' is a point mass, but has "
        "(1, 0)."
    ),
    "distance('R', ground, o, bar, o, length=0)": (
        "ValueError: Distance 'R' must have a positive number as `length`, but has 0.0; for points "
        "that coincide use `revolute` or `spherical`."
    ),
    "rolling_disk('R', ground, o, bar, o, normal=(0, 1), radius=-1)": (
        "ValueError: Rolling disk 'R' must have a positive number as `radius`, but has -1.0; "
        "correct it."
    ),
    "rolling_sphere('R', ground, oo, box, oo, normal=(0, 0, 1), radius=0)": (
        "ValueError: Rolling sphere 'R' must have a positive number as `radius`, but has 0.0; "
        "correct it."
    ),
    "rolling_wheel('R', ground, oo, box, oo, normal=(0, 0, 1), axle=(0, 1, 0), radius=0)": (
        "ValueError: Rolling wheel 'R' must have a positive number as `radius`, but has 0.0; "
        "correct it."
    ),
    "gear('G', bar, 0.0, other, 0.2)": (
        "ValueError: Gear 'G' must have a `radius_a` other than zero; correct it."
    ),
    "belt('B', bar, 0.1, other, -0.2)": (
        "ValueError: Belt 'B' must have a positive number as `radius_b`, but has -0.2; correct it."
    ),
    "motor('M', hinge, stall=1.0, no_load=0.0)": (
        "ValueError: Motor 'M' must have a positive number as `no_load`, but has 0.0; correct it."
    ),
    "gear('G', bar, 0.1, other, 0.2, axis_a=(0, 0, -1))": (
        "ValueError: Gear 'G' must have no `axis_a` in the plane, where all axes are at right "
        "angles to it; leave it out."
    ),
    "gear('G', box, 0.1, lid, 0.2, phase='p', axis_a=(0, 0, 1), axis_b=(0, 0, 1))": (
        "ValueError: Gear 'G' must have no `phase` in space, where its equation is one on "
        "velocities; leave it out."
    ),
    "torque('T', ground, bar, 1.0, axis=(0, 0, -1))": (
        "ValueError: Torque 'T' must have no `axis` in the plane, where all axes are at right "
        "angles to it; leave it out."
    ),
    "weld('W', ground, oo, box, oo, turn=(0, 0, 0, 0))": (
        "ValueError: Weld 'W' must have a direction in `turn`, but all its components are zero; "
        "write for example (1.0, 0.0, 0.0, 0.0)."
    ),
    "gear('G', box, 0.1, lid, 0.2)": (
        "ValueError: Gear 'G' must have `axis_a` and `axis_b` in space; write the direction of the "
        "axis of each wheel."
    ),
    "point_on_surface('S', ground, 3, bar, o)": (
        "TypeError: Argument `surface` must be a function, but is 3."
    ),
    "revolute('A', ground, (0, None), bar, o)": (
        "TypeError: Revolute joint 'A' must have as `at_a` a number, the name of a parameter or a "
        "function of (t, params), but has None."
    ),
    "distance('R', ground, o, bar, o, length=float('nan'))": (
        "ValueError: Distance 'R' must have a finite `length`, but it is nan; correct it."
    ),
    # bodies
    "planar_body('b', mass=-1, inertia=1)": (
        "ValueError: Body 'b' must have zero or a positive number as `mass`, but has -1.0; correct "
        "it."
    ),
    "point_mass('b', mass=-1)": (
        "ValueError: Body 'b' must have zero or a positive number as `mass`, but has -1.0; correct "
        "it."
    ),
    "planar_body('b', mass=1, inertia=1, static_moment=(2, 0))": (
        "ValueError: Body 'b' must have an `inertia` about the reference point of at least the "
        "mass times the squared distance of its centre, 4 kg m^2, but has 1; correct one of them."
    ),
    "spatial_body('b', mass=1, inertia=(0.1, 0.1, 0.5))": (
        "ValueError: Body 'b' must have an `inertia` whose principal moments about the centre of "
        "mass are those of a body, none above the sum of the other two, but they are 0.1, 0.1, 0.5 "
        "kg m^2; correct the inertia, or the point that it is about."
    ),
    "spatial_body('b', mass=1, inertia=(1, 1, 1), static_moment=(3, 0, 0))": (
        "ValueError: Body 'b' must have an `inertia` whose principal moments about the centre of "
        "mass are those of a body, none negative, but they are -8, -8, 1 kg m^2; correct the "
        "inertia, or the point that it is about."
    ),
    "planar_body('b', mass=1, inertia=1, center=o, static_moment=o)": (
        "ValueError: Body 'b' must have a `center`, with `inertia` about it, or a `static_moment`, "
        "with `inertia` about the reference point, but has both; drop one."
    ),
    "spatial_body('b', mass=1, inertia=1)": (
        "ValueError: Body 'b' must have three principal moments or a (3, 3) matrix as `inertia`, "
        "but has 1; for a body that cannot turn use `point_mass`."
    ),
    "spatial_body('b', mass=1, inertia=((1, 2, 0), (2, 1, 0), (0, 0, 1)))": (
        "ValueError: Body 'b' must have an `inertia` whose principal moments about the centre of "
        "mass are those of a body, none negative, but they are -1, 1, 3 kg m^2; correct the "
        "inertia, or the point that it is about."
    ),
    "point_mass('b', mass=1, dimension=4)": (
        "ValueError: Body 'b' must have `dimension` 2 (plane) or 3 (space), but has 4."
    ),
    "jax.jit(lambda m: planar_body('b', mass=m, inertia=1).name)(1.0)": (
        "TypeError: Body 'b' must not have a traced value as `mass`; write the name of a parameter "
        "there and pass the value in `params`."
    ),
    # the mechanism
    "Mechanism([other], [hinge])": (
        "ValueError: Revolute joint 'A' must be between bodies of the mechanism, but its body "
        "'bar' is not in `bodies` (other); add it there."
    ),
    "Mechanism([planar_body('bar', mass=2, inertia=1)], [hinge])": (
        "ValueError: Revolute joint 'A' must be between bodies of the mechanism, but its body "
        "'bar' is not the one of that name in `bodies` (bar); use the same object."
    ),
    "Mechanism([bar, bar])": (
        "ValueError: Argument `bodies` must have distinct names, but 'bar' is given twice; rename "
        "one."
    ),
    "Mechanism([bar], [hinge, hinge])": (
        "ValueError: Argument `joints` must have distinct names, but 'A' is given twice; rename "
        "one."
    ),
    "Mechanism([bar, box])": (
        "ValueError: Argument `bodies` must be all planar or all spatial, but 'bar' is planar, "
        "'box' is spatial; use one kind."
    ),
    "Mechanism([ground, bar])": (
        "TypeError: Argument `bodies` must not hold `ground`, which is always there; leave it out."
    ),
    "Mechanism([bar], [gravity()])": (
        "TypeError: Argument `joints` must hold objects such as revolute(...) or Holonomic(...), "
        "but holds Gravity(acceleration=9.81, down=None); move it to where it belongs."
    ),
    "gravity(down=-1)": (
        "TypeError: Gravity must have as `down` 3 numbers, the name of a parameter or a function "
        "of (t, params), but has -1."
    ),
    "Mechanism([bar], forces=[lambda q, v, t, p: 2.0])": (
        "ValueError: Argument `forces` must hold functions that return shape (3,) (one number per "
        "coordinate), but one returned ()."
    ),
    "Mechanism([bar], params=[1.0])": (
        'TypeError: Argument `params` must be an object such as {"m": 1.0}, but is [1.0].'
    ),
    "Mechanism([bar], forces=[gravity(down=(0, 0, -1))])": (
        "ValueError: Gravity must have a direction `down` of 2 components, as the bodies have, but "
        "has 3; write one for each direction."
    ),
    # parameters
    "Mechanism([bar], [revolute('A', ground, o, bar, ('l', 0))], params={'m': 1.0})": (
        "MissingParameterError: Argument `params` must hold 'l', which revolute joint 'A' reads, "
        "but holds m."
    ),
    "Mechanism([planar_body('b', mass=lambda t, p: p['m'], inertia=1)])": (
        "MissingParameterError: Argument `params` must hold 'm', which body 'b' reads, but holds "
        "nothing."
    ),
    "Mechanism([bar], [revolute('A', ground, 'at', bar, o)], params={'at': [1.0, 2.0, 3.0]})": (
        "ValueError: Revolute joint 'A' needs the parameter 'at' to have shape (2,), but it has "
        "(3,); give every member of a batch its own with `jax.vmap`."
    ),
    "Mechanism([spatial_body('b', mass='m', inertia='J')], params={'m': 1.0, 'J': (1, 1, 3)})": (
        "ValueError: Body 'b' must have an `inertia` whose principal moments about the centre of "
        "mass are those of a body, none above the sum of the other two, but they are 1, 1, 3 "
        "kg m^2; correct the inertia, or the point that it is about."
    ),
    "Mechanism([point_mass('b', mass='m')], params={'m': float('nan')})": (
        "ValueError: Body 'b' must have zero or a positive number as `mass`, but has nan; correct "
        "it."
    ),
    "Mechanism([bar], [rolling_disk('R', ground, o, bar, o, normal=(0, 1), radius='r')], params="
    "{'r': 0.0})": (
        "ValueError: Rolling disk 'R' must have a positive number as `radius`, but has 0.0; "
        "correct it."
    ),
    # starts
    "pendulum.guess({})": (
        "ValueError: Argument `starts` must have one start for each of bar, but has none for 'bar'."
    ),
    "pendulum.guess({'bar': Start(o), 'rod': Start(o)})": (
        "ValueError: Argument `starts` must have one start for each of bar, but has one for 'rod'."
    ),
    "pendulum.guess({'bar': Start(oo)})": (
        "ValueError: The start of body 'bar' must have `position` of shape (2,), but it has (3,); "
        "for a batch use `jax.vmap`."
    ),
    "pendulum.guess({'bar': (0, 0)})": (
        "TypeError: Argument `starts['bar']` must be an object such as Start((0.0, 0.0)), but is "
        "(0, 0)."
    ),
    "Mechanism([bob]).guess({'bob': Start(o, spin=2.0)})": (
        "ValueError: The start of body 'bob' must have neither `attitude` nor `spin`, since it is "
        "a point mass; leave them out."
    ),
    "Mechanism([box]).guess({'box': Start(oo, attitude=(0, 0, 0, 0))})": (
        "ValueError: The start of body 'box' must have a quaternion other than zero as "
        "`attitude`; without rotation it is (1, 0, 0, 0)."
    ),
    "pendulum.frame('bar', np.zeros((5, 3)))": (
        "ValueError: Argument `q` must have shape (3,) (one number per coordinate), but has shape "
        "(5, 3); for a batch use `jax.vmap`."
    ),
    "pendulum.load('bar', oo, np.zeros((5, 3)))": (
        "ValueError: Argument `generalized` must have shape (3,) (one number per coordinate), but "
        "has shape (5, 3); for a batch use `jax.vmap`."
    ),
    "pendulum.frame('rod', oo)": "ValueError: Argument `body` must be one of bar, but is 'rod'.",
}

RUN = """
said = {}
for case in json.load(sys.stdin):
    try:
        eval(case)
        said[case] = "nothing"
    except Exception as error:
        said[case] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    process = subprocess.run(
        [sys.executable, "-c", SETUP + RUN],
        input=json.dumps(list(MISUSE)),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return json.loads(process.stdout)


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_raises_a_message_with_a_remedy(case: str, said: dict[str, str]) -> None:
    assert said[case] == MISUSE[case]
