"""Train a small CNN on scikit-learn's bundled handwritten digits.

    python examples/digits_cnn.py --device neuron --compare

A standard PyTorch script: only the device's name differs from a run on the CPU. Weights and
batches are drawn on the CPU, so that two devices with one seed start alike and see the same data;
`--compare` trains on the CPU as well and compares the two loss curves.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from _jobs import ConsoleProgress, Counters, JobResult, Progress, fell_back, silent
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

TITLE = "CNN on handwritten digits"
HELD_OUT = 360
WANTED_ACCURACY = 0.97
# GELU and average pooling make the loss a smooth function of the weights, so that two float32 runs
# which round differently stay close. PyTorch's own two CPU convolutions (oneDNN on and off) stay
# within 1e-5 of each other here; with ReLU and max pooling the same two drift apart by 1e-2.
CURVE_RTOL, CURVE_ATOL = 1e-3, 1e-5
EPOCHS = 6


class DigitsCNN(nn.Module):
    """Two convolutions and two linear layers: float32 [batch, 1, 8, 8] to logits [batch, 10]."""

    def __init__(self) -> None:
        """Make the layers and draw their weights from torch's default generator."""
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=3, padding=1),
            nn.BatchNorm2d(16),
            nn.GELU(),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.BatchNorm2d(32),
            nn.GELU(),
            nn.AvgPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.GELU(), nn.Linear(64, 10)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of a batch of images."""
        logits: Tensor = self.classifier(self.features(images))
        return logits


@dataclass
class Training:
    """One training run: the loss of every step, the held-out accuracy after every epoch."""

    losses: list[float]
    accuracies: list[float]
    seconds: float

    @property
    def accuracy(self) -> float:
        """The held-out accuracy at the end."""
        return self.accuracies[-1]


def load_data(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Return the training and the held-out digits, split by `seed`."""
    digits = load_digits()
    images = torch.from_numpy(digits.images.astype(np.float32) / 16).unsqueeze(1)
    labels = torch.from_numpy(digits.target.astype(np.int64))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    train, held_out = order[HELD_OUT:], order[:HELD_OUT]
    return (
        TensorDataset(images[train], labels[train]),
        TensorDataset(images[held_out], labels[held_out]),
    )


def train(
    device: str,
    epochs: int = EPOCHS,
    batch_size: int = 64,
    seed: int = 0,
    progress: Progress = silent,
) -> Training:
    """Train on `device` and measure the accuracy on the held-out digits after every epoch."""
    started = time.perf_counter()
    train_set, held_out_set = load_data(seed)
    shuffle = torch.Generator().manual_seed(seed)
    train_loader = DataLoader(
        train_set, batch_size=batch_size, shuffle=True, drop_last=True, generator=shuffle
    )
    held_out_loader = DataLoader(held_out_set, batch_size=HELD_OUT // 2)

    torch.manual_seed(seed)
    model = DigitsCNN().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.05, total_steps=epochs * len(train_loader)
    )
    loss_fn = nn.CrossEntropyLoss()

    losses: list[float] = []
    accuracies: list[float] = []
    for epoch in range(epochs):
        model.train()
        epoch_losses = []
        for images, labels in train_loader:
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = loss_fn(model(images), labels)
            loss.backward()
            optimizer.step()
            schedule.step()
            epoch_losses.append(loss.detach())
        losses += torch.stack(epoch_losses).tolist()
        accuracies.append(evaluate(model, held_out_loader, device))
        progress(
            (epoch + 1) / epochs,
            f"{device}: epoch {epoch + 1}, loss {losses[-1]:.3f}, "
            f"held-out accuracy {accuracies[-1]:.1%}",
        )
    return Training(losses, accuracies, time.perf_counter() - started)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader[tuple[Tensor, ...]], device: str) -> float:
    """Return the part of the loader's digits that the model names rightly."""
    model.eval()
    right = torch.zeros((), dtype=torch.int64, device=device)
    count = 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        right += (model(images).argmax(dim=1) == labels).sum()
        count += len(labels)
    return right.item() / count


def curve_difference(losses: list[float], reference: list[float]) -> float:
    """Return the largest relative difference between two loss curves."""
    ours, theirs = torch.tensor(losses), torch.tensor(reference)
    return float(((ours - theirs).abs() / theirs.abs().clamp_min(CURVE_ATOL)).max())


def curves_agree(losses: list[float], reference: list[float]) -> bool:
    """Say whether two loss curves are equal within float32's tolerance over this training."""
    ours, theirs = torch.tensor(losses), torch.tensor(reference)
    return torch.allclose(ours, theirs, rtol=CURVE_RTOL, atol=CURVE_ATOL)


def run(
    device: str,
    epochs: int = EPOCHS,
    seed: int = 0,
    compare: bool = True,
    progress: Progress = silent,
) -> JobResult:
    """Run the job; with `compare` also train on the CPU and compare the loss curves."""
    started = time.perf_counter()
    share = 0.8 if compare else 1.0
    counters = Counters(torch.device(device))
    training = train(
        device, epochs, seed=seed, progress=lambda done, what: progress(share * done, what)
    )
    counts = counters.read()
    passed = training.accuracy >= WANTED_ACCURACY and not fell_back(counts)
    result = f"{training.accuracy:.1%} on {HELD_OUT} held-out digits"
    figures: dict[str, object] = {
        "accuracy": training.accuracy,
        "losses": training.losses,
        "device_seconds": training.seconds,
        "counters": counts,
    }
    if compare:
        reference = train(
            "cpu", epochs, seed=seed, progress=lambda done, what: progress(0.8 + 0.2 * done, what)
        )
        agree = curves_agree(training.losses, reference.losses)
        difference = curve_difference(training.losses, reference.losses)
        passed = passed and agree
        verdict = "equals" if agree else "DIFFERS from"
        result += f"; loss curve {verdict} the CPU's (within {difference:.1e})"
        figures |= {
            "cpu_accuracy": reference.accuracy,
            "cpu_losses": reference.losses,
            "cpu_seconds": reference.seconds,
            "curve_difference": difference,
        }
    return JobResult("a", TITLE, passed, result, time.perf_counter() - started, figures)


def main() -> int:
    """Run from the command line; the exit code says whether the job reached its figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compare", action="store_true", help="compare with a run on the CPU")
    options = parser.parse_args()
    result = run(
        options.device,
        options.epochs,
        options.seed,
        options.compare,
        progress=ConsoleProgress(),
    )
    print(f"{result.result}, {result.seconds:.1f} s")
    return 0 if result.passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
