"""`tune_cpu` says when it comes too late; what it does to batches is in `test_agreement`."""

import subprocess
import sys


def test_too_late_is_an_error() -> None:
    program = "import jax, jaxmech as jm; jax.numpy.ones(2) + 1; jm.tune_cpu()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert "must precede the first computation" in done.stderr.splitlines()[-1]
