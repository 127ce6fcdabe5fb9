"""DataLoader: workers, pinning, and moving batches to the device."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

WORKERS = 2


class Squares(Dataset[dict[str, torch.Tensor]]):
    """Item i is {"x": i, "y": i * i}, made in the worker."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.tensor(float(index)), "y": torch.tensor(index * index)}


@pytest.mark.parametrize("pin_memory", [False, True])
@pytest.mark.parametrize("workers", [0, WORKERS])
def test_batches_reach_the_device(workers: int, pin_memory: bool) -> None:
    torch.zeros(1, device="neuron").add_(1)  # the client runs before the workers are forked
    loader = DataLoader(Squares(), batch_size=4, num_workers=workers, pin_memory=pin_memory)
    total = torch.zeros((), device="neuron", dtype=torch.int64)
    for batch in loader:
        assert batch["x"].is_pinned() == pin_memory
        x = batch["x"].to("neuron", non_blocking=True)
        total += batch["y"].to("neuron", non_blocking=True).sum()
        assert x.device.type == "neuron"
    assert total.item() == sum(i * i for i in range(12))


def test_persistent_workers_over_several_epochs() -> None:
    loader = DataLoader(
        Squares(), batch_size=6, num_workers=1, persistent_workers=True, pin_memory=True
    )
    for _ in range(2):
        sums = [batch["x"].to("neuron").sum().item() for batch in loader]
        assert sums == [15.0, 51.0]


def test_datasets_on_the_device_without_workers() -> None:
    data = TensorDataset(torch.arange(6, device="neuron"))
    loader = DataLoader(data, batch_size=3)
    assert [batch[0].tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5]]


def test_generator_of_the_device_is_refused_like_elsewhere() -> None:
    sampler = torch.utils.data.RandomSampler(range(5), generator=torch.Generator().manual_seed(1))
    assert sorted(sampler) == [0, 1, 2, 3, 4]
