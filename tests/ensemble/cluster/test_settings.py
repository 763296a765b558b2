"""Mistakes in the table `cluster` are reported with their line before anything is started."""

import pytest
from dask_jobqueue.slurm import SLURMJob

from jaxmech.cli.main import main
from jaxmech.config.errors import StudyError
from jaxmech.config.toml import read
from jaxmech.config.validate import plain, structure
from jaxmech.ensemble import Cluster, Study
from jaxmech.ensemble.cluster.connect import slurm_options
from tests.ensemble.studies import STUDY, write_study

LINE = STUDY.count("\n") + 2  # of the header of the table
WRONG = [
    ('scheduler = "lokal:4"', 1, 'cluster.scheduler must begin with "local:4", "slurm" or'),
    ('scheduler = "lokal:4"', 1, "lokal is not a kind of cluster; did you mean `local`?"),
    ('scheduler = "local:0"', 1, "cluster.scheduler must have a number of workers, at least 1"),
    ('scheduler = "local"', 1, "cluster.scheduler must have a number of workers, as in local:4"),
    ('scheduler = "tcp://host"', 1, "cluster.scheduler must be an address with a port"),
    ('scheduler = "tcp://host:99999"', 1, "cluster.scheduler must be an address with a port"),
    ('scheduler = "local:9999"', 1, "cluster.scheduler must have at most 1024 workers"),
    ('scheduler = "file:"', 1, "cluster.scheduler must name the file of a scheduler"),
    ('scheduler = "local:2"\nworkers = 3', 2, "cluster.workers must be left out, or agree with"),
    ('scheduler = "local:2"\nworker = 2', 2, "is not a known key; did you mean `workers`?"),
    ('scheduler = "local:2"\ncores = 0', 2, "cluster.cores must be at least 1, but is 0"),
    ('scheduler = "local:2"\ncores = "all"', 2, "cluster.cores must be an integer, but is"),
    ('scheduler = "local:2"\ndevice = "tpu"', 2, 'cluster.device must be "cpu" or "gpu"'),
    ('scheduler = "local:2"\nmemory = "4"', 2, 'cluster.memory must be a number with a unit'),
    ('scheduler = "local:2"\nqueue = "short"', 2, 'cluster.queue must be left out: it is for'),
    ('scheduler = "local:2"\nwait = -1.0', 2, "cluster.wait must be at least 0, but is -1.0"),
    ('scheduler = "slurm"', 1, "cluster.memory must be given for jobs of SLURM"),
    ('scheduler = "slurm"\nmemory = "1 GiB"\nwalltime = "1h"', 3, "cluster.walltime must be of"),
    ('scheduler = "tcp://host:1"\ncores = 2', 2, "cluster.cores must be left out: the cluster"),
    ("cores = 2", 1, "cluster.scheduler must be given, but is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "below", "message"), WRONG)
def test_wrong_tables_are_reported_with_their_line(tmp_path, capsys, table, below, message) -> None:
    config = write_study(tmp_path, f"{STUDY}\n[cluster]\n{table}\n")
    assert main(["ensemble", str(config), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert message in error
    line = LINE + below if "missing" not in message and "must be given" not in message else LINE
    assert f"study.toml:{line}: " in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("slrum", "did you mean `slurm`?"),
        ("local:two", "cluster.scheduler must have a number of workers, at least 1"),
        ("slurm", "cluster.memory must be given for jobs of SLURM"),
        ("tcp://nowhere", "cluster.scheduler must be an address with a port"),
    ],
)
def test_wrong_options_are_reported(tmp_path, capsys, option, message) -> None:
    config = write_study(tmp_path)
    assert main(["ensemble", str(config), "--cluster", option]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"jaxmech: --cluster {option}: ")
    assert message in error


def test_a_missing_scheduler_is_reported(tmp_path, capsys) -> None:
    text = STUDY + '\n[cluster]\nscheduler = "tcp://127.0.0.1:9"\nwait = 0.5\n'
    config = write_study(tmp_path, text)
    assert main(["ensemble", str(config), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "there is no scheduler at tcp://127.0.0.1:9" in error
    assert "Traceback" not in error


def test_a_table_survives_conversion_to_plain_data(tmp_path) -> None:
    given = Cluster(scheduler="slurm", memory="2 GiB", workers=7, directives=("--qos=low",))
    assert structure(plain(given), Cluster) == given
    text = f'cluster = "local:2"\n{STUDY}'
    assert read(write_study(tmp_path, text), Study).cluster == Cluster(scheduler="local:2")


def test_jobs_of_slurm_have_the_given_settings() -> None:
    cluster = Cluster(
        scheduler="slurm:3", cores=4, memory="6 GiB", walltime="1-02:00:00", queue="short",
        account="mine", directives=("--qos=low",), prologue=("module load python",), device="gpu",
    )  # fmt: skip
    job = SLURMJob("tcp://host:1", name="one", **slurm_options(cluster, "/scratch"))
    script = job.job_script()
    for line in (
        "#SBATCH -p short", "#SBATCH -A mine", "#SBATCH --cpus-per-task=4", "#SBATCH --mem=6G",
        "#SBATCH -t 1-02:00:00", "#SBATCH --qos=low", "#SBATCH --gpus-per-task=1",
        "module load python",
    ):  # fmt: skip
        assert line in script.splitlines()
    (command,) = [line for line in script.splitlines() if "worker" in line and "tcp" in line]
    assert "--nthreads 1" in command
    assert "--lifetime 93300s" in command  # 26 h less five minutes
    assert "--local-directory /scratch" in command


def test_the_end_of_a_job_is_left_for_closing() -> None:
    assert Cluster(scheduler="local:1", walltime="01:00:00").lifetime == 3300
    with pytest.raises(StudyError, match="walltime"):
        Cluster(scheduler="slurm", memory="1 GiB", walltime="60")
