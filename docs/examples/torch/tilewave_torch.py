# SPDX-License-Identifier: MIT
"""tilewave as PyTorch's operators, torch.ops.tilewave.*: load() compiles the files beside this one against the library's headers
and registers them. They work under torch.compile, which sees their shapes by meta functions.

  import tilewave_torch
  tilewave_torch.load("/usr/local/include")          # of an installed tilewave; by default of the tree around this file
  y = torch.ops.tilewave.rms_norm(x, weight)"""
import os

HERE = os.path.dirname(os.path.abspath(__file__))


def load(include=None, build_directory=None, verbose=False, only=()):
    """Compiles what has changed (minutes the first time) and registers the operators. `include`: the folder that has tilewave/;
    else $TILEWAVE_INCLUDE, else that of the tree. `only`: subjects, such as "attention"; by default all. Throws what the compiler says."""
    from torch.utils import cpp_extension

    include = include or os.environ.get("TILEWAVE_INCLUDE") or os.path.join(HERE, "..", "..", "..", "include")
    if not os.path.isfile(os.path.join(include, "tilewave", "tilewave.hpp")):
        raise FileNotFoundError(f"include: {include} has no tilewave/tilewave.hpp")
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0a")  # no other architecture may be compiled beside it
    if build_directory:
        os.makedirs(build_directory, exist_ok=True)
    sources = [os.path.join(HERE, name) for name in sorted(os.listdir(HERE)) if name.endswith((".cu", ".cpp"))
               and (not only or any(word in name for word in only))]
    cpp_extension.load(
        "tilewave_torch", sources, extra_include_paths=[os.path.abspath(include)], build_directory=build_directory,
        extra_cflags=["-std=c++20", "-O2", "-D__HIP_PLATFORM_NVIDIA__=1", "-include", "cuda_runtime_api.h"],
        extra_cuda_cflags=["-std=c++20", "-O3"], is_python_module=False, verbose=verbose)
