"""Blocks computed by workers of Dask have the bits of those of one process, also after a stop."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxmech.config.errors import InputError, StoppedError
from jaxmech.config.toml import read
from jaxmech.ensemble import Study, run_study
from jaxmech.ensemble.cluster import connected
from jaxmech.ensemble.store import marked_blocks
from tests.ensemble.studies import OBSERVED, same_results, write_study

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask, about its own sockets


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Path]:
    config = write_study(tmp_path_factory.mktemp("whole"), OBSERVED)
    study = read(config, Study)
    run_study(study, config.parent / "run", folder=config.parent)
    return study, config.parent


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of two threads of this process."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0",
        set_as_default=False,
    ) as client:  # fmt: skip
        yield client


def test_results_are_bit_identical_and_a_stopped_run_goes_on(
    study: tuple[Study, Path], client: Any, tmp_path: Path
) -> None:
    calls = iter(range(2))
    of, folder = study
    with pytest.raises(StoppedError):
        run_study(
            of, tmp_path / "run", folder=folder, client=client,
            stop=lambda: next(calls, None) is None,
        )  # fmt: skip
    assert marked_blocks(tmp_path / "run")
    run_study(of, tmp_path / "run", folder=folder, client=client)
    assert same_results(tmp_path / "run", folder / "run")


@pytest.mark.slow
def test_processes_of_this_machine(study: tuple[Study, Path], tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    of, folder = study
    run_study(of, tmp_path / "run", folder=folder, client="local:2")
    assert same_results(tmp_path / "run", folder / "run")


@pytest.mark.parametrize("scheduler", ["slurm", "local", "local:0", "local:x", "tcp:", "host:8786"])
def test_an_address_is_local_or_that_of_a_scheduler(scheduler: str) -> None:
    with pytest.raises(InputError, match="a cluster must be like"), connected(scheduler):
        pass
