"""Locks and state that stay usable in the child of a fork.

A fork copies the memory of one thread only: a lock that another thread held stays locked in the
child for ever, and work in flight there never ends. Objects that own such things register a method
here, and it runs first thing in every child.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

_methods: list[weakref.WeakMethod[Callable[[], None]]] = []


def after_fork_in_child(method: Callable[[], None]) -> None:
    """Call the bound ``method`` in every forked child, for as long as its object lives."""
    _methods[:] = [known for known in _methods if known() is not None]
    _methods.append(weakref.WeakMethod(method))


def _run() -> None:
    for reference in _methods:
        method = reference()
        if method is not None:
            method()


os.register_at_fork(after_in_child=_run)
