"""The page about a probability of failure."""

from pathlib import Path

import pytest

from jaxmech.cli.report.failure_page import write_failure_report
from jaxmech.ensemble import Failure, Normal, Study, Times, failure_probability

pytest.importorskip("openturns")


def test_the_page_has_the_design_points_in_motion(tmp_path: Path) -> None:
    study = Study(
        model="pendulum", size=64, times=Times(end=1.0, saves=6),
        start={"theta": Normal(sd=0.3, mean=0.0)},
        failure=Failure(of="x1", above=0.9, method="importance", coefficient_of_variation=0.2),
    )  # fmt: skip
    result = failure_probability(study)
    page = write_failure_report(result, tmp_path / "page.html", study, "swing").read_text()
    assert page.count("data:image/gif") == len(result.design_points) == 2
    assert f"Reliability index {result.design_points[0].index:.3f}." in page
    assert "2 regions of failures" in page
    assert "What would change it" in page
