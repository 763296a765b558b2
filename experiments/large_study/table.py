"""The table of shares: the CPU seconds of studies by stage, compared with the kernel alone."""

from typing import Any

from experiments.large_study.stages import STAGES


def as_markdown(found: dict[str, Any]) -> str:
    """Format the studies side by side, in CPU seconds, with their shares in percent."""
    studies = found["studies"]
    rows = [["CPU seconds (%)", *(_title(one) for one in studies.values())]]
    for stage, title in STAGES.items():
        rows.append([title, *(_share(one, one["stages"][stage]) for one in studies.values())])
        if stage == "kernel":
            made = [_share(one, one["initial_states_cpu_seconds"]) for one in studies.values()]
            rows.append(["of it initial states", *made])
    rows += [
        ["**all**", *(f"**{one['cpu_seconds']:.1f}**" for one in studies.values())],
        ["M steps per CPU second", *(_millions(one, "own") for one in studies.values())],
        ["the kernel alone", *(_millions(one, "bare") for one in studies.values())],
        ["share of its speed", *(f"{one['share']:.0%}" for one in studies.values())],
        ["wall seconds after the start", *(_wall(one) for one in studies.values())],
        ["peak memory [MiB]", *(f"{one['peak_memory_mib']:.0f}" for one in studies.values())],
    ]
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body]) + "\n"


def as_page(found: dict[str, Any]) -> str:
    """Format the table with a description of the measurement."""
    facts, cores = found["environment"], found["cores"]
    text = (
        "# Where the CPU seconds of large studies go\n\n"
        "By `python -m experiments.large_study`: all that `jaxmech ensemble` does, by the CPU "
        "clocks of its threads.\n\n"
        f"{as_markdown(found)}\n"
        "*The kernel alone* is `vmap(simulate)` of a block of the study from given initial "
        "states, with its audit, on the same cores, measured before and after the study. "
        "*Initial states*: those of all blocks, made and checked alone.\n"
    )
    if both := found.get("agreement"):
        large, small = (" to ".join(f"{x:.5f}" for x in ends) for ends in both.values())
        text += (
            f"\nThe probability of the study of statistics is {large}, that of 10,000 trajectories "
            f"that were kept whole {small}; the intervals of all quantiles overlap, too.\n"
        )
    return text + (
        f"\n{cores} cores ({facts['processor']}), load {found['load']:.1f} before; jaxmech "
        f"{facts['jaxmech']}, jax {facts['jax']}, Python {facts['python']}.\n"
    )


def _title(one: dict[str, Any]) -> str:
    return f"{one['size']:,} x {one['steps']:,} steps, {one['stored']}"


def _share(one: dict[str, Any], seconds: float) -> str:
    return f"{seconds:.2f} ({seconds / one['cpu_seconds']:.0%})"


def _millions(one: dict[str, Any], whose: str) -> str:
    return f"{one[f'{whose}_steps_per_cpu_second'] / 1e6:.1f}"


def _wall(one: dict[str, Any]) -> str:
    return f"{one['wall_seconds_after_start']:.1f}"
