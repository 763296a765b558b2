"""`tune_cpu`: the settings without which XLA makes slow code of lanes on a CPU.

With options of XLA's CPU backend every loop becomes one native function of one thread, and rows of
an iteration come out of shared kernels. Hence one device per core, so that a batch can be shared
out. All of it holds for the whole process and must precede the first computation.
"""

import os

import jax

_SMALL_LOOP = "xla_cpu_small_while_loop_byte_threshold"
_BACKEND = ",".join(
    [
        f"{_SMALL_LOOP}=1000000000",
        "xla_cpu_use_multi_output_fusion=true",
        # These two leave the speed as it is and halve the time of compiling.
        "xla_cpu_disable_loop_unrolling=true",
        "-pre-RA-sched=fast",
    ]
)
_FLAGS = (f"--xla_backend_extra_options={_BACKEND}", "--xla_cpu_prefer_vector_width=512")


def tune_cpu(devices: int | None = None) -> None:
    """Makes batches fast on this CPU, for the whole process.

    Sets `XLA_FLAGS` and the number of CPU devices. Its side effect: every loop of any JAX program
    in this process runs in a single thread, and `jax.devices()` lists one device per core. With
    jaxlib 0.9.2, XLA can abort the process while it compiles some other programs with them.

    Args:
        devices: number of CPU devices; by default `JAX_NUM_CPU_DEVICES`, or one for each core.

    Raises:
        RuntimeError: JAX has computed something already, so the settings would not be read; or
            `XLA_FLAGS` sets other options of the CPU backend.

    Example:
        >>> tune_cpu()  # doctest: +SKIP
    """
    if is_tuned():
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if "--xla_backend_extra_options" in flags:
        raise RuntimeError(
            "tune_cpu() must be the only one to set --xla_backend_extra_options, but XLA_FLAGS "
            f"sets it already; add {_BACKEND} to it by hand."
        )
    asked = devices or int(os.environ.get("JAX_NUM_CPU_DEVICES", "0"))
    try:
        jax.config.update("jax_num_cpu_devices", asked or os.cpu_count() or 1)
    except RuntimeError as error:
        raise RuntimeError(
            "tune_cpu() must precede the first computation, but JAX has started already; call it "
            "right after the imports."
        ) from error
    os.environ["XLA_FLAGS"] = " ".join([flags, *_FLAGS]).strip()


def is_tuned() -> bool:
    """Whether the settings of `tune_cpu` are made."""
    return _SMALL_LOOP in os.environ.get("XLA_FLAGS", "")
