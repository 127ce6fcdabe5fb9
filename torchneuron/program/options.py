"""Compile options that every program is compiled with, by plugin."""

from __future__ import annotations

# XLA's options by name, with the reason for each.
_XLA_CPU = {
    # max and min keep NaN, as PyTorch's do.
    "xla_cpu_enable_fast_min_max": "false",
    # A bfloat16 value between two operations is rounded, as it is when they run one by one.
    "xla_allow_excess_precision": "false",
    # Where the host has vectors of 512 bits, use them, as PyTorch's kernels do: exponentials take half the
    # time. LLVM's own choice is 256.
    "xla_cpu_prefer_vector_width": "512",
}


# XLA splits every reduction into one over windows of 32 and one over their results. That pays where
# it crosses memory; along it, the loop is a vector unit's as it stands: 2 to 3 times as fast, and
# quicker to compile.
_NO_WINDOWS = {"xla_disable_hlo_passes": "tree_reduction_rewriter"}

# For one operator on few elements: half the time to compile, and programs as fast. Higher levels
# unroll loops over rows of some 40 elements whole, exponentials and all, which can take a second.
_QUICK = {"xla_backend_optimization_level": "1", "xla_cpu_use_fusion_emitters": "false"}


def module_flags(platform: str, *, reduces_rows: bool, small: bool) -> dict[str, str]:
    """The options for one module besides `xla_flags`; they follow from it, so that no key has them."""
    if platform != "cpu":
        return {}
    return (_NO_WINDOWS if reduces_rows else {}) | (_QUICK if small else {})


def xla_flags(platform: str) -> dict[str, str]:
    """The options for a plugin whose client calls itself ``platform``; they are part of a program's key."""
    return dict(_XLA_CPU) if platform == "cpu" else {}
