"""Random training loops that do what windows are not made for: ``run`` one of them on a device."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from torchneuron import _C

SIZE = 4
Read = list[torch.Tensor]


class Loop:
    """A loop's tensors, its model, and what it has read so far.

    What is drawn follows from ``seed``, on all devices alike. Most iterations are the same, and so
    become windows; the others choose otherwise here and there.
    """

    def __init__(self, seed: int, device: str, random_numbers: bool) -> None:
        """``random_numbers``: whether the loop draws any on the device."""
        self.device = device
        self.seed = seed
        self.choose = random.Random(seed)
        self.variants = random.Random(seed)
        self.read: Read = []
        torch.manual_seed(seed)
        start = [torch.rand(SIZE, SIZE) - 0.5 for _ in range(4)]
        rate = 0.3 if random_numbers else 0.0
        self.model = nn.Sequential(
            nn.Linear(SIZE, 6), nn.GELU(), nn.Dropout(rate), nn.LayerNorm(6), nn.Linear(6, SIZE)
        ).to(device)
        self.average = copy.deepcopy(self.model)
        self.tensors = [tensor.to(device) for tensor in start]
        self.kept: list[torch.Tensor] = []
        self.optimizer = self.choose.choice(OPTIMIZERS)(self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.97)
        names = sorted(set(ACTIONS) - (set() if random_numbers else RANDOM))
        self.body = [self.choose.choice(names) for _ in range(self.choose.randint(4, 12))]
        torch.manual_seed(seed)

    def any(self) -> torch.Tensor:
        """One of the tensors."""
        return self.choose.choice(self.tensors)

    def put(self, value: torch.Tensor) -> None:
        """A new value in the place of one of the tensors; bounded, and without a graph."""
        place = self.choose.randrange(len(self.tensors))
        self.tensors[place] = value.detach().tanh()

    def look(self, value: torch.Tensor) -> None:
        """Read a value now."""
        self.read.append(value.detach().cpu().clone())

    def iterate(self) -> None:
        """One iteration; once in a while something is done another way, twice, or not at all."""
        for number, name in enumerate(self.body):
            variant = self.variants.choices([0, 1, self.variants.random()], [40, 1, 1])[0]
            self.choose = random.Random(f"{self.seed} {number} {variant}")
            for _ in range(self.choose.choices([1, 0, 2], [20, 1, 1])[0]):
                ACTIONS[name](self)

    def finish(self) -> Read:
        """All that was read, and all that is there at the end."""
        for tensor in [*self.tensors, *self.kept]:
            self.look(tensor)
        for module in (self.model, self.average):
            for tensor in module.state_dict().values():
                self.look(tensor)
        return self.read


def _train(loop: Loop) -> None:
    loop.optimizer.zero_grad(set_to_none=loop.choose.random() < 0.8)
    for _ in range(loop.choose.choices([1, 2], [9, 1])[0]):  # gradients add up
        F.mse_loss(loop.model(loop.any().detach()), loop.any().detach()).backward()
    if loop.choose.random() < 0.5:
        nn.utils.clip_grad_norm_(loop.model.parameters(), 0.5)
    loop.optimizer.step()
    if loop.choose.random() < 0.3:
        loop.schedule.step()


@torch.no_grad()
def _write_through_a_view(loop: Loop) -> None:
    base = loop.any()
    view = loop.choose.choice(VIEWS)(base)
    loop.choose.choice(WRITES)(view)
    if loop.choose.random() < 0.2:
        loop.kept.append(view.clone())


def _alias(loop: Loop) -> None:
    loop.tensors[loop.choose.randrange(4)] = loop.any()[:]


def _keep(loop: Loop) -> None:
    if loop.choose.random() < 0.3:
        loop.kept.append(loop.any().mul(2))
    if len(loop.kept) > 5:
        loop.look(loop.kept.pop(loop.choose.randrange(3)))


def _fail(loop: Loop) -> None:
    half = loop.any() * 0.5
    if loop.choose.random() < 0.2:
        try:
            half + torch.ones(3, 3, device=loop.device)
        except RuntimeError as error:
            assert "broadcast" in str(error) or "must match" in str(error)  # noqa: PT017
        else:
            raise AssertionError("3 by 3 has been added to 4 by 4")
        try:
            half[SIZE]
        except IndexError:
            loop.put(half + 1)
    loop.put(half)


def _second_derivative(loop: Loop) -> None:
    x = loop.any().detach().clone().requires_grad_()
    y = (x.tanh() * x).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x, retain_graph=True)
    first.sum().backward()
    loop.put(second + (0 if x.grad is None else x.grad))


def _hook(loop: Loop) -> None:
    x = loop.any().detach().clone().requires_grad_()
    y = x * 2
    y.register_hook(lambda gradient: gradient * 0.5)
    y.sin().sum().backward()
    assert x.grad is not None
    loop.put(x.grad)


def _follow(loop: Loop) -> None:
    with torch.no_grad():
        for mine, other in zip(loop.average.parameters(), loop.model.parameters(), strict=True):
            mine.lerp_(other, 0.1)


def _copy(loop: Loop) -> None:
    if loop.choose.random() < 0.2:
        loop.model.load_state_dict(copy.deepcopy(loop.average.state_dict()))


def _infer(loop: Loop) -> None:
    context = loop.choose.choice([torch.no_grad, torch.inference_mode])
    with context():
        loop.look(loop.average(loop.any()))


def _switch(loop: Loop) -> None:
    x = loop.any() + 1
    mode = loop.choose.choices(["adaptive", "strict", "blocking"], [8, 1, 1])[0]
    # Strict loops stay so; the CPU's do not mind.
    adaptive = torch.neuron.eager_mode(mode) if _C.eager_mode() == "adaptive" else nullcontext()
    with adaptive:
        y = x * 0.5
    loop.put(y - x)


def _shape(loop: Loop) -> None:
    rows = loop.choose.choices([SIZE, 3, 2], [8, 1, 1])[0]
    loop.put(loop.any()[:rows].contiguous().exp().sum(0) + loop.any())


def _dtype(loop: Loop) -> None:
    dtype = loop.choose.choices([torch.float32, torch.float64, torch.float16], [8, 1, 1])[0]
    loop.put((loop.any().to(dtype) * 0.5 + 0.25).float())


def _read(loop: Loop) -> None:
    if loop.choose.random() < 0.3:
        loop.read.append(torch.tensor(loop.any().sum().item()))


def _draw(loop: Loop) -> None:
    with torch.no_grad():
        loop.any().normal_().tanh_()
        loop.put(F.dropout(loop.any(), 0.5) + torch.bernoulli(loop.any().sigmoid()))


def _seed(loop: Loop) -> None:
    if loop.choose.random() < 0.1:
        torch.manual_seed(loop.choose.randrange(100))


ACTIONS: dict[str, Callable[[Loop], Any]] = {
    "add": lambda loop: loop.put(loop.any() + loop.any()),
    "matmul": lambda loop: loop.put(loop.any() @ loop.any()),
    "where": lambda loop: loop.put(torch.where(loop.any() > 0, loop.any(), loop.any() * 0.5)),
    "softmax": lambda loop: loop.put(loop.any().softmax(-1) * 2 - loop.any()),
    "write": _write_through_a_view,
    "train": _train,
    "alias": _alias,
    "keep": _keep,
    "fail": _fail,
    "second derivative": _second_derivative,
    "hook": _hook,
    "follow": _follow,
    "copy": _copy,
    "infer": _infer,
    "switch": _switch,
    "shape": _shape,
    "dtype": _dtype,
    "read": _read,
    "draw": _draw,
    "seed": _seed,
}
RANDOM = {"draw", "seed"}
VIEWS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda t: t.t(),
    lambda t: t[1:3],
    lambda t: t[:, ::2],
    lambda t: t.diagonal(),
    lambda t: t.view(-1)[3:9],
    lambda t: t.view(2, 2, SIZE)[1],
]
WRITES: list[Callable[[torch.Tensor], Any]] = [
    lambda v: v.mul_(0.5),
    lambda v: v.add_(0.125),
    lambda v: v.zero_(),
    lambda v: v.copy_(v.flip(0)),
    lambda v: v.masked_fill_(v > 0.5, -0.25),
    lambda v: v.sub_(v.mean()),
    lambda v: torch.clamp(v, -0.5, 0.5, out=v),
]
OPTIMIZERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    lambda p: torch.optim.SGD(p, 0.1, foreach=False),
    lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    lambda p: torch.optim.Adam(p, 0.01, foreach=False, amsgrad=True),
]


def run(seed: int, device: str, iterations: int, random_numbers: bool = False) -> Read:
    """What the loop of this seed reads, in order."""
    loop = Loop(seed, device, random_numbers)
    for _ in range(iterations):
        loop.iterate()
    return loop.finish()
