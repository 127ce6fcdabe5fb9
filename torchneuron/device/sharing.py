"""Tensors sent to other processes: ``torch.multiprocessing`` queues, pipes and arguments.

Device memory cannot be shared. PyTorch would move the storage of a tensor that it sends to shared
host memory and leave the sender with a device tensor over it; instead, a copy travels, and becomes a
tensor on the same device in the process that receives it.
"""

import io
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def register() -> None:
    """Tell the pickler of ``multiprocessing`` how neuron tensors and storages travel."""
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _reduce_tensor)
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)


def _reduce_tensor(tensor: torch.Tensor) -> Reduced:
    if tensor.device.type != "neuron":
        reduced: Reduced = reductions.reduce_tensor(tensor)  # type: ignore[no-untyped-call]
        return reduced
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries. If you just want to transfer the data, "
            "call detach() on the tensor before serializing (e.g., putting it on the queue)."
        )
    copy = _packed(tensor.detach().cpu())
    return _rebuild_tensor, (type(tensor), copy, str(tensor.device), tensor.requires_grad)


def _rebuild_tensor(kind: type, copy: bytes, device: str, requires_grad: bool) -> torch.Tensor:
    tensor = _unpacked(copy).to(device)
    if issubclass(kind, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _reduce_storage(storage: torch.UntypedStorage) -> Reduced:
    if storage.device.type != "neuron":
        reduced: Reduced = reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]
        return reduced
    host = torch.empty(0, dtype=torch.uint8).set_(storage.to(device=torch.device("cpu")))
    return _rebuild_storage, (_packed(host), str(storage.device))


def _rebuild_storage(copy: bytes, device: str) -> torch.UntypedStorage:
    return _unpacked(copy).to(device).untyped_storage()


# By value: shared host memory would be gone before a spawned process opens it, because nobody here
# keeps the copy.


def _packed(host: torch.Tensor) -> bytes:
    buffer = io.BytesIO()
    torch.save(host, buffer)
    return buffer.getvalue()


def _unpacked(copy: bytes) -> torch.Tensor:
    tensor: torch.Tensor = torch.load(io.BytesIO(copy), weights_only=True)
    return tensor
