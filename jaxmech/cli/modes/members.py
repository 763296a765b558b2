"""The equilibria and eigenvalues of all members of a study, in blocks that a run keeps."""

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from jaxmech.analysis.equilibrium import Equilibrium, EquilibriumStatus, Stability, equilibrium
from jaxmech.analysis.equilibrium.equilibrium import prepared
from jaxmech.analysis.stability import modes
from jaxmech.analysis.symmetry.symmetries import Symmetries
from jaxmech.cli.modes.study import ModesStudy
from jaxmech.config.environment import DECISIVE, environment
from jaxmech.config.errors import refuse
from jaxmech.config.load import Subject, load
from jaxmech.config.plain import plain
from jaxmech.config.run_folder import npz, write_whole
from jaxmech.ensemble.draws import Sampler, Variable
from jaxmech.ensemble.kernel import errors_as_problems, inputs_of
from jaxmech.ensemble.provenance import function_digests
from jaxmech.ensemble.trajectory import Tree, first_of, guess, merged, params_of
from jaxmech.ensemble.work.plan import require_used
from jaxmech.utils.digests import sha256

Arrays = dict[str, np.ndarray]
FLOAT = np.dtype(np.float64)
_ORIGIN = "origin"  # of the arrays in a file, beside them
_KEPT = ("status", "stability", "residual", "q", "v")


@dataclass(frozen=True, eq=False)
class Members:
    """The members of a study; NaN in floating-point arrays of those without a verdict."""

    coordinates: tuple[str, ...]  # their names
    variables: tuple[Variable, ...]  # the draws
    status: np.ndarray  # an `EquilibriumStatus` each, shape (size,)
    # a `Stability` each, UNKNOWN where no equilibrium was found, shape (size,)
    stability: np.ndarray
    residual: np.ndarray  # residual of the equations of equilibrium, shape (size,)
    q: np.ndarray  # shape (size, n)
    v: np.ndarray  # shape (size, n)
    eigenvalues: np.ndarray  # zeros first, then by frequency [1/s], shape (size, j)
    zero: np.ndarray  # flags of the zero eigenvalues, shape (size, j)

    @property
    def has_verdict(self) -> np.ndarray:
        """Whether there is a verdict, shape (size,)."""
        return self.stability != Stability.UNKNOWN

    @property
    def growth(self) -> np.ndarray:
        """The largest real part of eigenvalues but zeros [1/s], NaN without any, shape (size,)."""
        real = np.where(self.zero, -np.inf, self.eigenvalues.real)
        largest = real.max(axis=1, initial=-np.inf)
        return np.where(np.isfinite(largest), largest, np.nan)

    @property
    def frequencies(self) -> np.ndarray:
        """The frequencies of vibrations, ascending [Hz], padded with NaN, shape (size, j)."""
        imag = self.eigenvalues.imag
        return np.sort(np.where(imag > 0, imag, np.nan), axis=1) / (2 * np.pi)


def members(
    study: ModesStudy, folder: Path = Path(), *, progress: bool = False, kept: Path | None = None
) -> Members:
    """Draw all members, and find their equilibria and eigenvalues in blocks, which are `kept`."""
    subject = load(study.model, study.model_options, folder, study.parameters)
    sampler = Sampler(study, subject)
    variables = sampler.rows(0, study.size)
    if not any(variable.varies for variable in variables):
        message = (
            "must hold a distribution, here or in another table: all members would be the same"
        )
        raise refuse("parameters", message)
    block = min(study.block, study.size)
    inputs = []
    for k in range(0, study.size, block):
        end = min(k + block, study.size)
        inputs.append(inputs_of(sampler.rows(k, end), FLOAT, k + block - end))
    with errors_as_problems():
        require_used(subject, *inputs[0])
        blocks = _blocks_in(kept, study, subject, inputs[0])
        compute = _program(study, subject, inputs[0])
        disable = None if progress else True
        with tqdm(total=study.size, unit=" members", disable=disable) as bar:
            parts = []
            for number, draws in enumerate(inputs):
                arrays = blocks.read(number, draws) if blocks else None
                if arrays is None:
                    arrays = compute(*draws)
                    if blocks:
                        blocks.write(number, draws, arrays)
                parts.append(arrays)
                bar.update(min(block, study.size - bar.n))
    return _members(subject, variables, jax.tree.map(lambda *x: np.concatenate(x), *parts), study)


def _members(
    subject: Subject, variables: tuple[Variable, ...], arrays: Arrays, study: ModesStudy
) -> Members:
    arrays = {name: values[: study.size] for name, values in arrays.items()}
    met = arrays["status"] == EquilibriumStatus.FOUND
    stability = np.where(met, arrays["stability"], Stability.UNKNOWN)
    with_verdict = stability != Stability.UNKNOWN
    return Members(
        coordinates=tuple(subject.system.coordinates),
        variables=variables,
        status=arrays["status"],
        stability=stability,
        residual=arrays["residual"],
        q=np.where(met[:, None], arrays["q"], np.nan),
        v=np.where(met[:, None], arrays["v"], np.nan),
        eigenvalues=np.where(with_verdict[:, None], arrays["eigenvalues"], np.nan),
        zero=arrays["zero"],
    )


def _program(
    study: ModesStudy, subject: Subject, first: tuple[Tree, Tree]
) -> Callable[[Tree, Tree], Arrays]:
    """The equilibria and eigenvalues of one block as a function of its draws."""
    system = subject.system

    def arguments(inputs: Tree) -> dict[str, Any]:
        q, v = guess(subject, inputs, FLOAT)
        rates = inputs["velocities"] or (v if study.steady else None)
        params = params_of(subject, inputs)
        return {"q": q, "params": params, "t": study.time, "fixed": study.fixed, "v": rates}

    symmetries = _symmetries(subject, arguments(first_of(*first)))

    def compute(varying: Tree, shared: Tree) -> Arrays:
        def member_equilibrium(member: Tree) -> Equilibrium:
            return equilibrium(system, **arguments(merged(shared, member)), symmetries=symmetries)

        states = jax.vmap(member_equilibrium)(varying)
        eigenmodes = modes(states.linearization)
        arrays = {name: getattr(states, name) for name in _KEPT}
        arrays |= {"eigenvalues": eigenmodes.eigenvalues, "zero": eigenmodes.zero}
        return jax.tree.map(np.asarray, arrays)

    return compute


def _symmetries(subject: Subject, arguments: dict[str, Any]) -> Symmetries | None:
    """The symmetries of the first member; a member without them gets no verdict."""
    if arguments["v"] is None:
        return None
    case = prepared(subject.system, **arguments, symmetries=None)
    symmetries: Symmetries = case.theta[-1]
    return symmetries


@dataclass(frozen=True)
class Blocks:
    """Files of a folder, each with the arrays of a block and the digest of what they come from."""

    folder: Path
    origin: str  # digest of all that decides about results, but for the draws of a block

    def read(self, block: int, draws: tuple[Tree, Tree]) -> Arrays | None:
        """The arrays of a block that was computed from the same, or None."""
        try:
            with np.load(io.BytesIO(self._file(block).read_bytes())) as stored:
                arrays = {name: stored[name] for name in stored.files}
        except (OSError, ValueError, zipfile.BadZipFile):  # there is none, or it is damaged
            return None
        is_same = str(arrays.pop(_ORIGIN, "")) == self._origin_of(draws)
        return arrays if is_same else None

    def write(self, block: int, draws: tuple[Tree, Tree], arrays: Arrays) -> None:
        """Keep the arrays of a block."""
        self.folder.mkdir(exist_ok=True)
        origin = np.array(self._origin_of(draws))
        write_whole(self._file(block), npz({**arrays, _ORIGIN: origin}))

    def _file(self, block: int) -> Path:
        return self.folder / f"{block:06d}.npz"

    def _origin_of(self, draws: tuple[Tree, Tree]) -> str:
        leaves, structure = jax.tree.flatten(draws)
        texts = (f"{x.dtype} {x.shape} {x.tobytes().hex()}" for x in map(np.asarray, leaves))
        return sha256(self.origin, str(structure), *texts)


def _blocks_in(
    folder: Path | None, study: Any, subject: Subject, first: tuple[Tree, Tree]
) -> Blocks | None:
    """The blocks of a study in a folder, which count if functions and environment are the same."""
    if folder is None:
        return None
    functions, _ = function_digests(subject, *first, float)
    facts = environment(subject)
    decisive = {key: facts[key] for key in DECISIVE if key in facts}
    decides = {"study": plain(study), "functions": functions, "environment": decisive}
    return Blocks(folder, sha256(json.dumps(decides, sort_keys=True)))
