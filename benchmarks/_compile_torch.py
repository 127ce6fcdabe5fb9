"""The models of benchmarks/compile.py in PyTorch: a small GPT, a small CNN, a decode loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, LAYERS, HEADS, LENGTH, BATCH = 96, 128, 4, 4, 64, 8
DECODE_WIDTH, DECODE_LAYERS, DECODE_HEADS, DECODE_LENGTH, DECODE_TOKENS = 256, 6, 8, 128, 32
IMAGES, CHANNELS, SIDE, CLASSES = 32, 3, 32, 10

Compile = Callable[[Any], Any]


class Attention(nn.Module):
    """Causal self-attention; with a cache, of one new token over what came before."""

    def __init__(self, width: int, heads: int) -> None:
        """Width of the model, number of heads."""
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self, x: torch.Tensor, cache: torch.Tensor | None = None, at: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x: (batch, length, width); cache: (2, batch, heads, room, width / heads); at: 0-d int64."""
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(x).view(shape).permute(2, 0, 3, 1, 4)
        if cache is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            cache[0].index_copy_(2, at.view(1), k)
            cache[1].index_copy_(2, at.view(1), v)
            mask = (torch.arange(cache.shape[3], device=x.device) <= at).view(1, -1)
            y = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Pre-normalised attention and MLP."""

    def __init__(self, width: int, heads: int) -> None:
        """Width of the model, number of heads."""
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, *cached: torch.Tensor) -> torch.Tensor:
        """x: (batch, length, width)."""
        x = x + self.attention(self.norm1(x), *cached)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """A decoder-only transformer with learned positions."""

    def __init__(self, width: int, layers: int, heads: int, length: int) -> None:
        """Sizes; the vocabulary is fixed."""
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: (batch, length) -> logits (batch, length, vocabulary)."""
        x = self.embed(ids) + self.place.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def decode(
        self, token: torch.Tensor, caches: list[torch.Tensor], at: torch.Tensor
    ) -> torch.Tensor:
        """token: (batch, 1), at: 0-d position -> the most likely next token, (batch, 1)."""
        x = self.embed(token) + self.place(at)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, cache, at)
        return self.head(self.norm(x)).argmax(-1)


def cnn() -> nn.Module:
    """Three convolutions with batch normalisation, pooled to classes."""
    layers: list[nn.Module] = []
    channels = CHANNELS
    for width in (32, 64, 64):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, CLASSES))


def training_step(
    model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, device: str, compile: Compile
) -> Callable[[], torch.Tensor]:
    """One step of AdamW on a copy of the model; gives the loss, on the device."""
    model = copy.deepcopy(model).to(device)
    inputs, targets = inputs.to(device), targets.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x).flatten(0, -2), y.flatten())

    forward, update = compile(loss_of), compile(optimizer.step)

    def step() -> torch.Tensor:
        loss = forward(inputs, targets)
        loss.backward()
        update()
        optimizer.zero_grad()
        return loss.detach()

    return step


def gpt_step(device: str, compile: Compile, seed: int) -> Callable[[], torch.Tensor]:
    """A training step of the GPT."""
    torch.manual_seed(seed)
    model = GPT(WIDTH, LAYERS, HEADS, LENGTH)
    ids = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
    return training_step(model, ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), device, compile)


def cnn_step(device: str, compile: Compile, seed: int) -> Callable[[], torch.Tensor]:
    """A training step of the CNN."""
    torch.manual_seed(seed)
    images = torch.randn(IMAGES, CHANNELS, SIDE, SIDE)
    return training_step(cnn(), images, torch.randint(CLASSES, (IMAGES,)), device, compile)


def decode_loop(device: str, compile: Compile, seed: int) -> Callable[[], torch.Tensor]:
    """Greedy decoding of some tokens with a static cache."""
    torch.manual_seed(seed)
    model = GPT(DECODE_WIDTH, DECODE_LAYERS, DECODE_HEADS, DECODE_LENGTH).to(device).eval()
    room = (2, 1, DECODE_HEADS, DECODE_LENGTH, DECODE_WIDTH // DECODE_HEADS)
    caches = [torch.zeros(room, device=device) for _ in range(DECODE_LAYERS)]
    positions = [torch.tensor(i, device=device) for i in range(DECODE_TOKENS)]
    first = torch.zeros(1, 1, dtype=torch.int64, device=device)
    decode = compile(model.decode)

    @torch.no_grad()
    def loop() -> torch.Tensor:
        tokens = [first]
        for at in positions:
            tokens.append(decode(tokens[-1], caches, at))
        return torch.cat(tokens, 1)

    return loop


WORKS = {"gpt step": gpt_step, "cnn step": cnn_step, "decode loop": decode_loop}
