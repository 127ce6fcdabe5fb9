"""Which line of the user's code a node of a graph comes from."""

import os
import re

import torch
from torch import fx

_FRAME = re.compile(r'File "(.+?)", line (\d+)')
_LIBRARY = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


def line_of(node: fx.Node) -> str:
    """``file:line`` of the innermost frame that is not PyTorch's own, else of the innermost; empty
    for a node that keeps no stack.
    """
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    users = [frame for frame in frames if not frame[0].startswith(_LIBRARY)]
    return ":".join((users or frames or [("",)])[-1])
