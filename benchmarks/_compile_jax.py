"""The models of benchmarks/compile.py written by hand in JAX, each step one jitted function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from _compile_torch import (
    BATCH,
    CHANNELS,
    CLASSES,
    DECODE_HEADS,
    DECODE_LAYERS,
    DECODE_LENGTH,
    DECODE_TOKENS,
    DECODE_WIDTH,
    HEADS,
    IMAGES,
    LAYERS,
    LENGTH,
    SIDE,
    VOCABULARY,
    WIDTH,
)

Tree = Any


def _linear(key: jax.Array, rows: int, columns: int) -> Tree:
    return {"w": jax.random.normal(key, (rows, columns)) * 0.02, "b": jnp.zeros(columns)}


def _affine(width: int) -> Tree:
    return {"scale": jnp.ones(width), "bias": jnp.zeros(width)}


def _gpt(key: jax.Array, width: int, layers: int, length: int) -> Tree:
    def block(key: jax.Array) -> Tree:
        keys = jax.random.split(key, 4)
        return {
            "norm1": _affine(width),
            "norm2": _affine(width),
            "qkv": _linear(keys[0], width, 3 * width),
            "out": _linear(keys[1], width, width),
            "up": _linear(keys[2], width, 4 * width),
            "down": _linear(keys[3], 4 * width, width),
        }

    keys = jax.random.split(key, layers + 3)
    return {
        "embed": jax.random.normal(keys[0], (VOCABULARY, width)),
        "place": jax.random.normal(keys[1], (length, width)),
        "norm": _affine(width),
        "head": jax.random.normal(keys[2], (width, VOCABULARY)) * 0.02,
        "blocks": [block(k) for k in keys[3:]],
    }


def _dense(x: jax.Array, p: Tree) -> jax.Array:
    return x @ p["w"] + p["b"]


def _norm(x: jax.Array, p: Tree) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["scale"] + p["bias"]


def _attend(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array) -> jax.Array:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf))
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v)


def _heads(x: jax.Array, p: Tree, heads: int) -> tuple[jax.Array, ...]:
    batch, length, width = x.shape
    parts = _dense(x, p).reshape(batch, length, 3, heads, width // heads)
    return tuple(parts.transpose(2, 0, 3, 1, 4))


def _merge(y: jax.Array) -> jax.Array:
    batch, heads, length, size = y.shape
    return y.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)


def _mlp(x: jax.Array, p: Tree) -> jax.Array:
    hidden = jax.nn.gelu(_dense(_norm(x, p["norm2"]), p["up"]), approximate=False)
    return x + _dense(hidden, p["down"])


def _gpt_logits(p: Tree, ids: jax.Array) -> jax.Array:
    x = p["embed"][ids] + p["place"][: ids.shape[1]]
    mask = jnp.tril(jnp.ones((ids.shape[1], ids.shape[1]), bool))
    for block in p["blocks"]:
        y = _attend(*_heads(_norm(x, block["norm1"]), block["qkv"], HEADS), mask)
        x = _mlp(x + _dense(_merge(y), block["out"]), block)
    return _norm(x, p["norm"]) @ p["head"]


def _cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).mean()


def _adamw(p: Tree, gradients: Tree, state: Tree) -> tuple[Tree, Tree]:
    m, v, t = state
    t = t + 1
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, gradients)
    v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, v, gradients)

    def update(w: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        scaled = jnp.sqrt(b / (1 - 0.999**t)) + 1e-8
        return w * (1 - 1e-3 * 0.01) - 1e-3 * (a / (1 - 0.9**t)) / scaled

    return jax.tree.map(update, p, m, v), (m, v, t)


def _zeros(p: Tree) -> Tree:
    return jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.zeros(())


def gpt_step(seed: int) -> Callable[[], jax.Array]:
    """A training step of the GPT: loss, gradients and AdamW in one program."""
    key = jax.random.key(seed)
    p = _gpt(key, WIDTH, LAYERS, LENGTH)
    ids = jax.random.randint(key, (BATCH, LENGTH + 1), 0, VOCABULARY)

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(p: Tree, state: Tree, ids: jax.Array) -> tuple[Tree, Tree, jax.Array]:
        loss, gradients = jax.value_and_grad(
            lambda q: _cross_entropy(_gpt_logits(q, ids[:, :-1]), ids[:, 1:])
        )(p)
        return *_adamw(p, gradients, state), loss

    held = [p, _zeros(p)]

    def run() -> jax.Array:
        held[0], held[1], loss = step(held[0], held[1], ids)
        return loss

    return run


def _convolution(x: jax.Array, w: jax.Array) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)


def _cnn_logits(p: Tree, x: jax.Array) -> tuple[jax.Array, Tree]:
    moments = []
    for layer in p["layers"]:
        x = _convolution(x, layer["w"]) + layer["b"]
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        moments.append((mean, variance))
        x = (x - mean) * jax.lax.rsqrt(variance + 1e-5) * layer["scale"] + layer["bias"]
        window = (1, 2, 2, 1)
        x = jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, window, window, "VALID")
    return _dense(x.reshape(x.shape[0], -1), p["head"]), moments


def cnn_step(seed: int) -> Callable[[], jax.Array]:
    """A training step of the CNN, in the layout that XLA prefers, running statistics included."""
    keys = jax.random.split(jax.random.key(seed), 6)
    layers, channels = [], CHANNELS
    for key, width in zip(keys, (32, 64, 64), strict=False):
        weight = jax.random.normal(key, (3, 3, channels, width)) * 0.05
        layers.append({"w": weight, "b": jnp.zeros(width), **_affine(width)})
        channels = width
    p = {"layers": layers, "head": _linear(keys[3], 64 * 16, CLASSES)}
    images = jax.random.normal(keys[4], (IMAGES, SIDE, SIDE, CHANNELS))
    targets = jax.random.randint(keys[5], (IMAGES,), 0, CLASSES)
    running = [(jnp.zeros(layer["b"].shape), jnp.ones(layer["b"].shape)) for layer in layers]

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(p: Tree, state: Tree, running: Tree) -> tuple[Tree, ...]:
        def loss_of(q: Tree) -> tuple[jax.Array, Tree]:
            logits, moments = _cnn_logits(q, images)
            return _cross_entropy(logits, targets), moments

        (loss, moments), gradients = jax.value_and_grad(loss_of, has_aux=True)(p)
        running = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, running, moments)
        return *_adamw(p, gradients, state), running, loss

    held = [p, _zeros(p), running]

    def run() -> jax.Array:
        *held[:], loss = step(*held)
        return loss

    return run


def decode_loop(seed: int) -> Callable[[], jax.Array]:
    """Greedy decoding of some tokens with a static cache."""
    p = _gpt(jax.random.key(seed), DECODE_WIDTH, DECODE_LAYERS, DECODE_LENGTH)
    room = (2, 1, DECODE_HEADS, DECODE_LENGTH, DECODE_WIDTH // DECODE_HEADS)
    held = [[jnp.zeros(room) for _ in range(DECODE_LAYERS)]]
    positions = [jnp.asarray(i) for i in range(DECODE_TOKENS)]

    @partial(jax.jit, donate_argnums=(1,))
    def decode(p: Tree, caches: list[jax.Array], token: jax.Array, at: jax.Array) -> Any:
        x = p["embed"][token] + p["place"][at]
        mask = jnp.arange(DECODE_LENGTH) <= at
        written = []
        for block, cache in zip(p["blocks"], caches, strict=True):
            q, k, v = _heads(_norm(x, block["norm1"]), block["qkv"], DECODE_HEADS)
            cache = jax.lax.dynamic_update_slice(cache, jnp.stack((k, v)), (0, 0, 0, at, 0))
            written.append(cache)
            y = _attend(q, cache[0], cache[1], mask)
            x = _mlp(x + _dense(_merge(y), block["out"]), block)
        return written, (_norm(x, p["norm"]) @ p["head"]).argmax(-1)

    def run() -> jax.Array:
        tokens = [jnp.zeros((1, 1), jnp.int32)]
        for at in positions:
            held[0], token = decode(p, held[0], tokens[-1], at)
            tokens.append(token.astype(jnp.int32))
        return jnp.concatenate(tokens, 1)

    return run


WORKS = {"gpt step": gpt_step, "cnn step": cnn_step, "decode loop": decode_loop}
