"""Computing blocks in a worker without a cluster, and workers that are refused."""

import pickle
from pathlib import Path

import jax
import pytest

from jaxmech.config.environment import environment
from jaxmech.config.run_folder import write_whole
from jaxmech.config.toml import read
from jaxmech.ensemble import Study, run_study
from jaxmech.ensemble.cluster.connect import facts_of_all
from jaxmech.ensemble.cluster.settings import Cluster
from jaxmech.ensemble.cluster.tasks import ClusterError
from jaxmech.ensemble.cluster.workers import Order, compute_blocks, facts_of_worker, lease_of
from jaxmech.ensemble.run import BlockRange
from jaxmech.ensemble.store.checksums import marked_blocks
from jaxmech.ensemble.study import Study as Studied
from tests.ensemble.studies import same_bits, write_study


@pytest.fixture
def begun(tmp_path) -> tuple[Path, Studied]:
    """A run of which the first block is done, and its study."""
    config = write_study(tmp_path)
    study = read(config, Study)
    run_study(study, tmp_path / "run", folder=tmp_path, part=BlockRange(0, 1))
    return tmp_path / "run", study


def order(out: Path, study: Studied, lease: str = "mine") -> bytes:
    resolved = study.resolved()
    return pickle.dumps(Order(resolved, out.parent, out, lease, True))


def test_blocks_are_computed_but_not_twice(begun) -> None:
    out, study = begun
    write_whole(lease_of(out), "mine")
    found = compute_blocks(order(out, study), (3, 0, 1))
    assert found.failed == {3: 0, 1: 0}
    assert found.left == ()
    assert marked_blocks(out) == [0, 1, 3]
    assert compute_blocks(order(out, study), (2, 4, 1)).failed == {2: 0, 4: 0}
    lease_of(out).unlink()
    run_study(study, out.parent / "alone", folder=out.parent)
    run_study(study, out, folder=out.parent)
    assert same_bits(out, out.parent / "alone")


@pytest.mark.slow
@pytest.mark.parametrize("lease", [None, "of another run"])
def test_a_worker_stops_when_its_run_has_ended(begun, lease) -> None:
    out, study = begun
    if lease:
        write_whole(lease_of(out), lease)
    found = compute_blocks(order(out, study), (1, 0, 2))
    assert found.failed == {}
    assert found.left == (1, 2)
    assert marked_blocks(out) == [0]


def test_a_worker_with_another_version_is_named(begun) -> None:
    out, study = begun
    write_whole(lease_of(out), "mine")
    file = out / "environment.json"
    file.write_text(file.read_text().replace(f'"jax": "{jax.__version__}"', '"jax": "0.8.0"'))
    with pytest.raises(ClusterError, match=r'jax is "0\.8\.0" there and .*install the same'):
        compute_blocks(order(out, study), (1,))
    assert marked_blocks(out) == [0]


def test_a_worker_with_another_file_is_named(begun) -> None:
    out, study = begun
    write_whole(lease_of(out), "mine")
    file = out.parent / "spring.py"
    file.write_text(file.read_text().replace("0.5 * p", "0.7 * p"))
    with pytest.raises(ClusterError, match="compute another study: the model differs in lagr"):
        compute_blocks(order(out, study), (1,))
    assert marked_blocks(out) == [0]


class Known:
    """A client whose workers have these facts."""

    def __init__(self, *facts: object) -> None:
        self.found = {f"tcp://host{k}:1": one for k, one in enumerate(facts)}

    def nthreads(self) -> dict[str, int]:
        return dict.fromkeys(self.found, 1)

    def run(self, function, *args, on_error: str) -> dict[str, object]:
        assert (function, on_error) == (facts_of_worker, "return")
        return self.found


OWN = {**environment(), "host": "here"}
CLUSTER = Cluster(scheduler="local:1", wait=0.1)


def test_equal_workers_are_accepted() -> None:
    told = list[str]()
    facts = facts_of_all(Known(OWN, OWN), CLUSTER, told.append)
    assert facts == environment()
    assert told == []


def test_mixed_numbers_of_devices_are_reported_and_recorded() -> None:
    told = list[str]()
    facts = facts_of_all(Known(OWN | {"devices": 1}, OWN | {"devices": 2}), CLUSTER, told.append)
    assert facts["devices"] == [1, 2]
    assert "the workers differ in their devices: 1 and 2; " in told[0]


def test_mixed_processors_are_reported_and_recorded() -> None:
    told = list[str]()
    facts = facts_of_all(Known(OWN, OWN | {"processor": "Other"}), CLUSTER, told.append)
    assert facts["processor"] == sorted(["Other", OWN["processor"]])
    (text,) = told
    assert "the workers differ in their processor: " in text
    assert "the last bits of the results may differ too" in text
