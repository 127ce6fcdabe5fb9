"""The zoo's models that transformers has not: a ResNet, a U-Net and an LSTM tagger."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ResidualBlock(nn.Module):
    """Two convolutions with batch norm beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """A ResNet of two stages for images of 3 channels; gives the loss and the logits."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.stages = nn.Sequential(ResidualBlock(8, 8, 1), ResidualBlock(8, 16, 2))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, classes))

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.head(self.stages(self.stem(images)))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class TimedBlock(nn.Module):
    """A convolution with group norm, shifted by the embedding of a diffusion time."""

    def __init__(self, inputs: int, outputs: int, features: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, inputs)
        self.convolution = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(features, outputs)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        return self.convolution(F.silu(self.norm(x))) + self.time(time)[:, :, None, None]


class PixelAttention(nn.Module):
    """Self-attention over the pixels of an image."""

    def __init__(self, channels: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, 3, self.heads, -1, height * width)
        q, k, v = qkv.transpose(-1, -2).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(-1, -2).reshape(batch, channels, height, width))


class UNet(nn.Module):
    """A diffusion model's U-Net of one level down and up; gives the loss and the noise it sees."""

    def __init__(self, features: int = 16) -> None:
        super().__init__()
        self.features = features
        self.time = nn.Sequential(nn.Linear(features, 16), nn.SiLU(), nn.Linear(16, 16))
        self.inner = nn.Conv2d(3, 8, 3, padding=1)
        self.down = TimedBlock(8, 16, 16)
        self.shrink = nn.Conv2d(16, 16, 3, 2, 1)
        self.middle = PixelAttention(16)
        self.grow = nn.ConvTranspose2d(16, 16, 2, 2)
        self.up = TimedBlock(32, 8, 16)
        self.outer = nn.Conv2d(16, 3, 3, padding=1)

    def embed(self, times: Tensor) -> Tensor:
        half = self.features // 2
        scale = torch.exp(torch.arange(half, device=times.device) * (-math.log(1e4) / half))
        angles = times[:, None] * scale
        return self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))

    def forward(self, images: Tensor, times: Tensor) -> dict[str, Tensor]:
        time = self.embed(times)
        first = self.inner(images)
        second = self.down(first, time)
        low = self.middle(self.shrink(second))
        coarse = F.interpolate(F.avg_pool2d(low, 2), scale_factor=2, mode="nearest")
        high = self.grow(low + F.interpolate(coarse, size=low.shape[-2:], mode="bilinear"))
        third = self.up(torch.cat([high, second], dim=1), time)
        noise = self.outer(torch.cat([third, first], dim=1))
        return {"loss": F.mse_loss(noise, images), "noise": noise}


class LstmTagger(nn.Module):
    """A bidirectional LSTM of two layers that tags tokens; gives loss, logits and last states."""

    def __init__(self, vocabulary: int = 61, hidden: int = 16, tags: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.lstm = nn.LSTM(hidden, hidden, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, tags)

    def forward(self, ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        states, (hidden, cell) = self.lstm(self.embedding(ids))
        logits = self.head(states)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits, "hidden": hidden, "cell": cell}
