"""A page of `jm.view`, as a picture: an arm of three joints, six motions from different poses.

`experiments.pictures` writes it. Needs Chromium, as `chromium` or in the variable CHROMIUM.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp

import jaxmech as jm
from jaxmech.parts import Mechanism, gravity, ground, revolute, spatial_body

SHOWN = 0.9  # seconds after the start
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--window-size=900,600",
)


def arm() -> Mechanism:
    column = spatial_body("column", mass=4.0, inertia=(0.05, 0.05, 0.02))
    upper = spatial_body("upper", mass=2.0, inertia=(0.06, 0.06, 0.005))
    fore = spatial_body("fore", mass=1.0, inertia=(0.002, 0.02, 0.02))
    joints = [
        revolute("yaw", ground, (0, 0, 0), column, (0, 0, -0.2), axis=(0, 0, 1)),
        revolute("shoulder", column, (0, 0, 0.2), upper, (0, 0, -0.3), axis=(0, 1, 0)),
        revolute("elbow", upper, (0, 0, 0.3), fore, (-0.25, 0, 0), axis=(0, 1, 0)),
    ]
    return Mechanism([column, upper, fore], joints, [gravity(9.81)])


def main(target: Path) -> None:
    """Write the picture; in double precision."""
    mechanism = arm()

    def swing(angle):
        q = jnp.stack([0.0, angle, 0.3])
        return jm.simulate(mechanism.system, q, jnp.array([1.5, 0.0, 0.0]), ts)

    ts = jnp.linspace(0.0, 3.0, 121)
    motions = jax.vmap(swing)(jnp.linspace(0.6, 1.1, 6))
    view = jm.view(mechanism, motions, show=False)
    print(view)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not chromium:
        raise SystemExit("the picture of a page needs Chromium; name it in CHROMIUM")
    with tempfile.TemporaryDirectory() as folder:
        address = view.save(Path(folder) / "view.html").as_uri() + f"#t={SHOWN}&play=0&theme=light"
        shot = [f"--screenshot={target.resolve()}", "--virtual-time-budget=1500"]
        command = [chromium, *OPTIONS, f"--user-data-dir={folder}", *shot, address]
        quiet = subprocess.DEVNULL
        subprocess.run(command, check=True, timeout=120, stdout=quiet, stderr=quiet)
    print(target)
