"""The limit state of a study, and its blocks on the workers of a cluster."""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

from jaxmech.config import plain, python_files, require_no_run_code
from jaxmech.ensemble.failure.limit_state import BlockOrder, LimitState, Margins
from jaxmech.ensemble.failure.margin import Margin, require_quantity
from jaxmech.ensemble.failure.standard_space import standard_space
from jaxmech.ensemble.kernel import with_steps
from jaxmech.ensemble.study import Study
from jaxmech.ensemble.work.plan import planned
from jaxmech.ensemble.work.tasks import Tasks, pickled

BATCH = 512  # trajectories that are computed at a time by default


def limit_state_of(study: Study, out: Path | None, folder: Path) -> LimitState:
    """The limit state of a study that has a failure, after all checks."""
    failure = study.failure
    assert failure is not None
    require_no_run_code(python_files(plain(study), folder), folder)
    bare = replace(
        study, block=study.block or BATCH, statistics={}, until=None, store="all", cluster=None
    )
    plan = planned(bare, out or Path(), folder)
    require_quantity(failure, plan.study, plan.subject)
    space = standard_space(plan.sampler)
    motion = with_steps(replace(plan.study, **plan.functions), plan.subject, plan.sampler)
    return LimitState(Margin(motion, plan.subject, failure), plan.sampler, space, failure.most)


@dataclass(frozen=True, eq=False)
class AwayBlocks:
    """The computation of blocks by the workers of a cluster.

    Each of them makes the limit state of the study for itself. Blocks are the same programs there
    as here, so that the results have the same bits on processors of one kind.
    """

    tasks: Tasks
    study: Study  # with its failure, and its number of steps
    folder: Path  # to which its paths refer

    def map(self, limit: LimitState, blocks: Iterable[BlockOrder]) -> Iterator[Margins]:
        """The results of blocks in their order."""
        steps = limit.margin.study.steps
        study = replace(self.study, steps=steps, cluster=None)
        order = pickled((study, self.folder.resolve()))
        return self.tasks.map(partial(_of_worker, order), blocks)


def _of_worker(order: bytes, block: BlockOrder) -> Margins:
    return _limit_of_worker(order).computed(*block)


@lru_cache(maxsize=2)
def _limit_of_worker(order: bytes) -> LimitState:
    study, folder = pickle.loads(order)
    return limit_state_of(study, None, folder)
