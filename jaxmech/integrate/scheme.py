"""`Scheme`: a system and the policies of its integration, and their effects within a step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.integrate.methods.runge_kutta import AbstractMethod, AbstractPair, AbstractRungeKutta
from jaxmech.integrate.run_params import after_samples, with_outputs
from jaxmech.integrate.spans import AnyInterval
from jaxmech.integrate.steps import AbstractSteps, Adaptive, FixedSteps, method_and_steps
from jaxmech.laws import AbstractFormulation, Law, Partition, UdwadiaKalaba, solve_law
from jaxmech.state import AbstractStabilization, Free, Projection, RowsBefore
from jaxmech.system import Acceleration, Drive, EquationsOfMotion, Params, System, with_mass_rank
from jaxmech.utils.checks import require_kind
from jaxmech.utils.probing import depends_on


@dataclass(frozen=True)
class Scheme:
    """A system and the policies of its integration: a run without its numbers."""

    system: System  # after `at`, with its `singular_mass` set
    method: AbstractMethod
    steps: AbstractSteps  # how long they are
    formulation: AbstractFormulation
    stabilization: AbstractStabilization
    # Whether constraints contain the time, so that they may move the system where its accelerations
    # do not show it; known after `at`.
    drive: Drive = Drive.NONE
    contact: bool | None = None  # whether a gap is closed; None if the parameters tell
    is_compact: bool = False  # whether the code of a step is to be short rather than fast

    @staticmethod
    def of(
        system: System, method: AbstractMethod | None = None, steps: AbstractSteps | None = None,
        projection: AbstractStabilization | None = Projection(),
        formulation: AbstractFormulation = UdwadiaKalaba(),
    ) -> "Scheme":  # fmt: skip
        """The scheme of the arguments of `simulate`, or an error that names a wrong one."""
        require_kind("system", system, System, "System(...)")
        method, steps = method_and_steps(method, steps)
        stabilization = Free() if projection is None else projection
        require_kind("projection", stabilization, AbstractStabilization, "Projection() or None")
        require_kind("formulation", formulation, AbstractFormulation, "UdwadiaKalaba()")
        return Scheme(system, method, steps, formulation, stabilization)

    def at(self, *state: Any) -> "Scheme":
        """The scheme with what is known of the system at q, v, t and params of these shapes."""
        detected = with_mass_rank(self.system, *state).singular_mass
        detected = self.formulation.takes_as_singular(detected)
        system = self.system.with_singular_mass(detected)
        if system.velocities and not isinstance(self.method, AbstractRungeKutta):
            raise ValueError(
                f"Argument `method`, {type(self.method).__name__}(), must go with a system without "
                f"quasi-velocities, but this one has {', '.join(system.velocities)}; use "
                "`jm.RK4()`, or `jm.DormandPrince8()` with `jm.Adaptive()` steps; a Mechanism with "
                'velocities="rates" has none.'
            )
        self.method.require(system, (self.formulation, self.stabilization), *state)
        return replace(self, system=system, drive=Drive.of(system, *state))

    @property
    def policies(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "steps": self.steps,
            "projection": self.stabilization,
            "formulation": self.formulation,
        }

    @property
    def per_save(self) -> int:
        """The number of fixed steps from one save time to the next."""
        assert isinstance(self.steps, FixedSteps)
        return self.steps.count

    @property
    def adaptive(self) -> Adaptive:
        assert isinstance(self.steps, Adaptive)
        return self.steps

    @property
    def pair(self) -> AbstractPair:
        assert isinstance(self.method, AbstractPair)
        return self.method

    def with_one_step(self) -> "Scheme":
        """The scheme of a single step, which is the same for all policies of its length."""
        return replace(self, steps=FixedSteps(1))

    def if_closed(
        self, params: Params, count: int, closed: Callable[[], Any], apart: Callable[[], Any]
    ) -> Any:
        """One of two results by whether any of the last `count` switches, those of gaps, is on."""
        if self.contact is not None:
            return closed() if self.contact else apart()
        return jax.lax.cond(params.active[-count:].any(), closed, apart)

    def law(
        self, q: Array, v: Array, t: Array, params: Params, independent: Array | None = None
    ) -> tuple[EquationsOfMotion, Law]:
        """The equations with feedback, and their solution; only `independent` rows count."""
        eom = self.formulation.equations(self.system, q, v, t, params)
        feedback = self.stabilization.feedback(self.system, q, v, t, params)
        eom = replace(eom, b=eom.b + feedback)
        return eom, solve_law(
            self.formulation, self.system, eom, (q, v, t, params), independent=independent
        )

    def in_step(self, q: Array, v: Array, t: Array, h: Array, params: Params) -> Params:
        """The parameters of a step, in which dry friction in space may keep its direction."""
        directed = getattr(self.system.nonideal, "in_step", None)
        return params if directed is None else directed(self, q, v, t, h, params)

    def turned(self, q: Array, v: Array, t: Array, params: Params) -> Params:
        """The parameters of a step, in which the directions are those of slips at its end."""
        turned = getattr(self.system.nonideal, "turned", None)
        return params if turned is None else turned(self.system, q, v, t, params)

    def completed(
        self, chart: Partition | None, q: Array, v: Array, t: Array, params: Params
    ) -> tuple[Array, Array, Array | None]:
        """The state completed by a chart, and whether that succeeded; None without a chart."""
        return (q, v, None) if chart is None else chart.complete(self.system, q, v, t, params)

    def after_step(
        self, chart: Partition | None, q: Array, v: Array, t: Array, params: Params,
        rows_before: RowsBefore,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """The stabilized state, and whether it could be reached."""
        # Projection ignores constraints on accelerations, so it cannot compare ranks.
        some_are_not_projected = any(isinstance(c, Acceleration) for c in self.system.constraints)
        rows_to_compare = None if some_are_not_projected else rows_before

        def moved(stabilization: AbstractStabilization) -> tuple[Array, Array, Array]:
            return stabilization.after_step(self.system, q, v, t, params, rows_to_compare)

        state = moved(self.stabilization)
        if chart is None:
            return state
        # Where the chart was not usable the step was done in all coordinates, and drifts.
        if not isinstance(self.stabilization, Projection):
            state = jax.tree.map(partial(jnp.where, chart.usable), state, moved(Projection()))
        q, v, reached = state
        following = self.formulation.chart(self.system, q, v, t, params, rows_before.extents)
        q, v, completed = self.completed(following, q, v, t, params)
        return q, v, reached if completed is None else reached & completed

    def correction(
        self, unprojected: tuple[Array, Array], projected: tuple[Array, Array], t: Array, h: Array,
        params: Params,
    ) -> tuple[Array, ...]:  # fmt: skip
        """The change of q by the projection, and h times that of its rate; none without a drive.

        Constraints that contain the time move a system also by the projection: all the way if the
        accelerations at the stages do not show it, as after a kink of a given motion. What moves
        along with it is late by a part of the step.
        """
        if self.drive == Drive.NONE:
            return ()
        dq, dv = (y - x for x, y in zip(unprojected, projected, strict=True))
        change = self.system.dynamics.speeds(projected[0], dv, t, params)
        return jax.lax.stop_gradient((dq, h * change))

    def sampled(
        self, memory: Array, q: Array, v: Array, t: Array, params: Params, interval: AnyInterval
    ) -> tuple[Array, Params]:
        """What controllers keep during a step that begins here, and its parameters with that."""
        if self.system.sampling is not None and interval:
            after = partial(after_samples, self.system, memory, q, v, t, params)
            before, is_due = memory, interval.turns
            memory = jax.lax.cond(is_due, after, lambda: before)
        return memory, with_outputs(self.system, params, memory)

    def after_kink(
        self, q: Array, v: Array, t: Array, params: Params, interval: AnyInterval
    ) -> tuple[Array, Array, Array]:
        """The state at which a step begins after a kink, and whether it could be reached.

        A constraint whose speed jumps there makes the velocities jump, by an impulse.
        """
        reached = jnp.asarray(True)
        if not interval:
            return q, v, reached
        turns = interval.turns

        def speed(t: Array) -> Array:
            return self.system.dynamics.velocity_level(q, v, t, params)

        if not depends_on(speed, (t,)):
            return q, v, reached
        stabilization = self.stabilization
        stabilization = stabilization if isinstance(stabilization, Projection) else Projection()
        return jax.lax.cond(
            turns,
            lambda: stabilization.after_step(self.system, q, v, t, params),
            lambda: (q, v, reached),
        )
