"""Translation of LLVM assembly to PTX, by LLVM's backend for NVIDIA GPUs."""

import llvmlite.binding as llvm

from jaxmech.compiler.backends.cuda.libdevice import bitcode

OLDEST = "sm_75"  # Turing: with PTX 6.3 it is accepted by every driver of CUDA 12 and 13
_TRIPLE = "nvptx64-nvidia-cuda"


def ptx(module: str, target: str) -> str:
    """Translate a module to PTX.

    Raises:
        LibdeviceError: if the module needs libdevice, which is not installed.
    """
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(cpu=target, opt=3)
    parsed = llvm.parse_assembly(module)
    parsed.triple, parsed.data_layout = _TRIPLE, str(machine.target_data)
    if "@__nv_" in module:
        _link_libdevice(parsed, machine)
    return machine.emit_assembly(parsed)


def _link_libdevice(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """Link the functions of libdevice that the module calls, for internal use."""
    library = llvm.parse_bitcode(bitcode())
    library.triple, library.data_layout = module.triple, module.data_layout
    names = [function.name for function in library.functions if not function.is_declaration]
    module.link_in(library)
    for name in names:
        # Not exported, so that unused functions are dropped.
        module.get_function(name).linkage = "internal"
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(0))
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)
