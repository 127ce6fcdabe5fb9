"""What AOTAutograd's partitioner says of higher-order operators' results, corrected where it is
wrong for this device.

*Generator states.* Where the backward recomputes a random op (``torch.utils.checkpoint``), the
partitioner puts ``run_and_save_rng_state(op, ...)`` into the forward graph, whose first result is
one more output, and ``run_with_rng_state(state, op, ...)`` into the backward graph. Both are lowered
(see ``lowering/higher_order/rng_state.py``); a state is a ui8 tensor of 16 elements on the device.
PyTorch describes it by the CPU generator's 5056 bytes, as for all devices that it does not know: its
list of devices with such a generator is closed (``rng_prims.impl_map``), and registering as a
"graph-safe" one (``register_graphsafe_rng_device_type``) would make states of Generator objects,
which a program could take no part in.

*Storages.* Several calls of one sub-graph (``invoke_subgraph``) give tensors of their own. But what
the partitioner adds to a sub-graph's results it describes at each call by the same fake tensors,
those of the sub-graph, as if all lay in one storage.
"""

import operator
from collections.abc import Iterator

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._prims import rng_prims
from torch.utils import _pytree as pytree

STATE_BYTES = 16


def correct_states(gm: fx.GraphModule) -> bool:
    """Give the results of the graph's higher-order operators the metadata of what the program makes
    of them; tells whether there was a generator state.

    To be called on a forward or backward graph before its inputs' and outputs' metadata are read.
    """
    found = False
    for module in gm.modules():
        if isinstance(module, fx.GraphModule):
            for state, like in _states(module.graph):
                state.meta["val"] = _state_like(like)
                found = True
    _separate_results(gm.graph)
    return found


def _separate_results(graph: fx.Graph) -> None:
    """Give each result of a call of a sub-graph a storage of its own."""
    seen: set[int] = set()
    for node in graph.find_nodes(op="call_function", target=torch.ops.higher_order.invoke_subgraph):
        for user in node.users:
            value = user.meta.get("val")
            if user.target is not operator.getitem or not isinstance(value, torch.Tensor):
                continue
            storage = value.untyped_storage()._cdata
            fake_mode = detect_fake_mode([value])
            if storage in seen and fake_mode is not None:
                with fake_mode:
                    user.meta["val"] = torch.empty_strided(
                        value.shape, value.stride(), dtype=value.dtype, device=value.device
                    )
            seen.add(storage)


def _states(graph: fx.Graph) -> Iterator[tuple[fx.Node, fx.Node]]:
    """(state, a node that has the op's result) of each state that is made or used."""
    for node in graph.find_nodes(op="call_function", target=rng_prims.run_and_save_rng_state):
        taken = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        if 0 in taken:
            yield taken[0], taken.get(1, taken[0])
    for node in graph.find_nodes(op="call_function", target=rng_prims.run_with_rng_state):
        state = node.args[0]
        if isinstance(state, fx.Node):
            yield state, node


def _state_like(node: fx.Node) -> torch.Tensor:
    tensors = [x for x in pytree.tree_leaves(node.meta.get("val")) if isinstance(x, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("neuron")
    fake_mode = detect_fake_mode(tensors)
    if fake_mode is None:
        return torch.empty(STATE_BYTES, dtype=torch.uint8, device="meta")
    with fake_mode:
        return torch.empty(STATE_BYTES, dtype=torch.uint8, device=device)
