"""PyTorch's custom operators of the chunked linear cross entropy: each is a loop in plain torch code."""

from typing import Any

from torchneuron.lowering.registry import decomposition


@decomposition("torch_nn._linear_cross_entropy_batch_chunked")
def batch_chunked(*args: Any) -> Any:
    from torch.nn.modules.linear_cross_entropy import _linear_cross_entropy_batch_chunked as op

    return op._init_fn(*args)


@decomposition("torch_nn._linear_cross_entropy_batch_chunked_no_reduction")
def batch_chunked_no_reduction(*args: Any) -> Any:
    from torch.nn.modules.linear_cross_entropy import (
        _linear_cross_entropy_batch_chunked_no_reduction as op,
    )

    return op._init_fn(*args)
