"""Compile options that every program is compiled with, by plugin."""

from __future__ import annotations

# XLA's options by name, with the reason for each.
_XLA_CPU = {
    # max and min keep NaN, as PyTorch's do.
    "xla_cpu_enable_fast_min_max": "false",
    # A bfloat16 value between two operations is rounded, as it is when they run one by one.
    "xla_allow_excess_precision": "false",
}


def xla_flags(platform: str) -> dict[str, str]:
    """The options for a plugin whose client calls itself ``platform``; they are part of a program's key."""
    return dict(_XLA_CPU) if platform == "cpu" else {}
