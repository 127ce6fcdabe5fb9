"""Train a character-level GPT on the Python language reference, then sample from it.

    python examples/char_gpt.py --device neuron

The text ships with every CPython (`pydoc_data.topics`, what `help("assert")` prints). The training
loop is standard PyTorch: AdamW with its default (foreach) implementation, a learning rate that
changes every step, gradient clipping, and `torch.autocast` to bfloat16. On `neuron` the script also
records how many programs each step brought, which is none from the third step on.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass, field
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from _jobs import ConsoleProgress, Counters, JobResult, Progress, fell_back, silent
from torch import Tensor, nn

TITLE = "Character GPT on the Python reference"
# A fixed alphabet, so that the model's shapes are the same for every Python version's text.
ALPHABET = "\n" + "".join(chr(code) for code in range(32, 127))
HELD_OUT_CHARACTERS = 40_000


@dataclass(frozen=True)
class Config:
    """Sizes of model and training; the defaults make about 0.8 million parameters."""

    layers: int = 4
    heads: int = 4
    width: int = 128
    context: int = 64
    dropout: float = 0.0
    batch: int = 16
    steps: int = 300
    warmup: int = 20
    peak_lr: float = 2e-3
    clip: float = 1.0
    evaluation_batches: int = 8
    sampled: int = 240
    seed: int = 0


class Block(nn.Module):
    """One pre-norm transformer block: float [batch, time, width] to the same."""

    def __init__(self, config: Config) -> None:
        """Make the block's layers."""
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.norm_attention = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.project = nn.Linear(config.width, config.width)
        self.norm_mlp = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(),
            nn.Linear(4 * config.width, config.width),
        )
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Add attention over the past, then the MLP."""
        batch, time_steps, width = x.shape
        qkv = self.qkv(self.norm_attention(x))
        q, k, v = (
            part.view(batch, time_steps, self.heads, width // self.heads).transpose(1, 2)
            for part in qkv.split(width, dim=2)
        )
        attended = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        attended = attended.transpose(1, 2).reshape(batch, time_steps, width)
        x = x + self.drop(self.project(attended))
        x = x + self.drop(self.mlp(self.norm_mlp(x)))
        return x


class CharGPT(nn.Module):
    """A GPT over characters: int64 [batch, time] to logits [batch, time, len(ALPHABET)]."""

    def __init__(self, config: Config) -> None:
        """Make the layers and draw their weights from torch's default generator."""
        super().__init__()
        self.token_embedding = nn.Embedding(len(ALPHABET), config.width)
        self.position_embedding = nn.Embedding(config.context, config.width)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, len(ALPHABET), bias=False)
        self.apply(self._initialise)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the character after each position."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.token_embedding(tokens) + self.position_embedding(positions))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def load_text() -> str:
    """Return the language reference, restricted to `ALPHABET`."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    return "".join(character for character in text if character in ALPHABET)


def encode(text: str) -> Tensor:
    """Return the characters' numbers, int64 [len(text)]."""
    number = {character: index for index, character in enumerate(ALPHABET)}
    return torch.tensor([number[character] for character in text], dtype=torch.int64)


def decode(tokens: list[int]) -> str:
    """Return the text of a list of character numbers."""
    return "".join(ALPHABET[token] for token in tokens)


def pair_loss(train: Tensor, held_out: Tensor) -> float:
    """Return the held-out loss in nats of the best model that sees one character of context."""
    size = len(ALPHABET)
    counts = torch.bincount(train[:-1] * size + train[1:], minlength=size * size)
    counts = counts.view(size, size).double() + 0.1
    log_probability = (counts / counts.sum(1, keepdim=True)).log()
    return -float(log_probability[held_out[:-1], held_out[1:]].mean())


def draw_batch(data: Tensor, config: Config, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return random windows of `data` and the same shifted by one, int64 [batch, context]."""
    starts = torch.randint(len(data) - config.context, (config.batch, 1), generator=generator)
    windows = data[starts + torch.arange(config.context + 1)]
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def learning_rate_factor(step: int, config: Config) -> float:
    """Return the factor on the peak learning rate: a linear warm-up, then half a cosine."""
    if step < config.warmup:
        return (step + 1) / (config.warmup + 1)
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, done)))


@dataclass
class Run:
    """One training: the losses read, and what each step cost."""

    losses: list[float] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    new_programs: list[int] = field(default_factory=list)
    held_out_loss: float = math.nan
    first_step_seconds: float = math.nan
    training_seconds: float = math.nan


class Trainer:
    """Model, optimizer and schedule on one device; `step` trains on one batch."""

    def __init__(self, device: str, config: Config, train_data: Tensor) -> None:
        """Draw the weights by the configuration's seed and move them to `device`."""
        self.device = device
        self.config = config
        self.data = train_data
        self.batches = torch.Generator().manual_seed(config.seed)
        # Weights are drawn on the CPU, so that every device starts from the same ones.
        torch.manual_seed(config.seed)
        self.model = CharGPT(config).to(device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config.peak_lr, betas=(0.9, 0.99), weight_decay=0.1
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: learning_rate_factor(step, config)
        )

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a batch under bfloat16 autocast."""
        with torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16):
            logits = self.model(inputs)
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

    def step(self) -> Tensor:
        """Train on one batch; return its loss, still on the device."""
        inputs, targets = draw_batch(self.data, self.config, self.batches)
        loss = self.loss(inputs.to(self.device), targets.to(self.device))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    @torch.no_grad()
    def evaluate(self, data: Tensor) -> float:
        """Return the mean loss over fixed windows of held-out `data`."""
        self.model.eval()
        windows = torch.Generator().manual_seed(self.config.seed)
        losses = []
        for _ in range(self.config.evaluation_batches):
            inputs, targets = draw_batch(data, self.config, windows)
            losses.append(self.loss(inputs.to(self.device), targets.to(self.device)))
        self.model.train()
        return float(torch.stack(losses).mean())

    @torch.no_grad()
    def sample(self, prompt: Tensor, count: int, seed: int, temperature: float = 0.7) -> str:
        """Continue a prompt of exactly `context` characters by `count` characters.

        The window slides, so every character costs one forward pass of the same shape.
        """
        self.model.eval()
        generator = torch.Generator(self.device).manual_seed(seed)
        window = prompt.view(1, -1).to(self.device)
        drawn = []
        for _ in range(count):
            logits = self.model(window)[:, -1] / temperature
            following = torch.multinomial(logits.softmax(-1), 1, generator=generator)
            drawn.append(following)
            window = torch.cat([window[:, 1:], following], dim=1)
        self.model.train()
        return decode(torch.cat(drawn, dim=1)[0].tolist())


def split_text() -> tuple[Tensor, Tensor]:
    """Return the encoded text's training part and its held-out end."""
    data = encode(load_text())
    return data[:-HELD_OUT_CHARACTERS], data[-HELD_OUT_CHARACTERS:]


def train(trainer: Trainer, held_out: Tensor, progress: Progress = silent) -> Run:
    """Train all steps and evaluate; losses are read every 20 steps, so the device runs ahead."""
    config, run_ = trainer.config, Run()
    started = time.perf_counter()
    pending: list[Tensor] = []  # losses still on the device
    for step in range(config.steps):
        counters = Counters(torch.device(trainer.device))
        run_.learning_rates.append(float(trainer.schedule.get_last_lr()[0]))
        pending.append(trainer.step())
        new_programs = counters.new_programs()
        if new_programs is not None:
            run_.new_programs.append(new_programs)
        if step == 0 or (step + 1) % 20 == 0 or step + 1 == config.steps:
            run_.losses.extend(torch.stack(pending).tolist())
            pending.clear()
            progress((step + 1) / config.steps, f"step {step + 1}, loss {run_.losses[-1]:.2f}")
        if step == 0:
            run_.first_step_seconds = time.perf_counter() - started
    run_.held_out_loss = trainer.evaluate(held_out)
    run_.training_seconds = time.perf_counter() - started
    return run_


def run(device: str, config: Config | None = None, progress: Progress = silent) -> JobResult:
    """Run the job: train, compare with the character-pair model, sample."""
    config = config or Config()
    started = time.perf_counter()
    counters = Counters(torch.device(device))
    train_data, held_out = split_text()
    trainer = Trainer(device, config, train_data)
    trained = train(trainer, held_out, lambda done, what: progress(0.85 * done, what))
    baseline = pair_loss(train_data, held_out)
    progress(0.85, "sampling")
    prompt = held_out[: config.context]
    sample_started = time.perf_counter()
    text = trainer.sample(prompt, config.sampled, seed=config.seed + 1)
    sample_seconds = time.perf_counter() - sample_started
    counts = counters.read()
    progress(1.0, f"held-out loss {trained.held_out_loss:.2f}")

    late_programs = sum(trained.new_programs[2:])
    passed = trained.held_out_loss < baseline and late_programs == 0 and not fell_back(counts)
    result = (
        f"held-out loss {trained.held_out_loss:.2f} nats "
        f"(character pairs: {baseline:.2f}), sampled {len(text)} characters"
    )
    if trained.new_programs:
        result += f"; new programs after step 2: {late_programs}"
    figures: dict[str, object] = {
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "held_out_loss": trained.held_out_loss,
        "pair_loss": baseline,
        "losses": trained.losses,
        "new_programs_by_step": trained.new_programs,
        "first_step_seconds": trained.first_step_seconds,
        "training_seconds": trained.training_seconds,
        "sample_seconds": sample_seconds,
        "prompt": decode(prompt.tolist()),
        "sample": text,
        "counters": counts,
    }
    return JobResult("b", TITLE, passed, result, time.perf_counter() - started, figures)


def main() -> int:
    """Run from the command line; the exit code says whether the job reached its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--steps", type=int, default=Config.steps)
    parser.add_argument("--dropout", type=float, default=Config.dropout)
    parser.add_argument("--seed", type=int, default=Config.seed)
    options = parser.parse_args()
    config = Config(steps=options.steps, dropout=options.dropout, seed=options.seed)
    result = run(options.device, config, progress=ConsoleProgress())
    print(f"\n{result.figures['prompt']}|{result.figures['sample']}\n")
    print(f"{result.result}, {result.seconds:.1f} s")
    return 0 if result.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
