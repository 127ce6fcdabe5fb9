"""Many threads on one device."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import torch

THREADS = 8


def test_threads_compute_independently() -> None:
    barrier = threading.Barrier(THREADS)

    def work(seed: int) -> float:
        barrier.wait()
        x = torch.full((16,), float(seed), device="neuron")
        for step in range(40):
            x = x * 1.5 + step
            x.sub_(step)
        return float(x.sum().item())

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(work, range(THREADS)))
    for seed, result in enumerate(results):
        assert torch.tensor(result).isclose(torch.tensor(16 * seed * 1.5**40), rtol=1e-3)


def test_threads_meet_new_signatures_at_once() -> None:
    """All ask for the same programs in the same moment; each is right."""
    barrier = threading.Barrier(THREADS)

    def work(index: int) -> list[float]:
        barrier.wait()
        x = torch.arange(7.0, device="neuron") + index
        return (x.exp().log() * 0.5).tolist()

    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(work, range(THREADS)))
    for index, result in enumerate(results):
        expected = (torch.arange(7.0) + index) * 0.5
        assert torch.tensor(result).allclose(expected, rtol=1e-4, atol=1e-5)


def test_threads_on_devices_of_their_own() -> None:
    def work(index: int) -> int:
        torch.neuron.set_device(index)
        x = torch.zeros(4, device="neuron")
        for _ in range(20):
            x.add_(index)
        assert x.device.index == index
        return int(x[0].item())

    count = torch.neuron.device_count()
    with ThreadPoolExecutor(count) as pool:
        assert list(pool.map(work, range(count))) == [20 * i for i in range(count)]


def test_tensors_cross_threads() -> None:
    x = torch.ones(8, device="neuron")
    lock = threading.Lock()

    def work(_: int) -> None:
        for _ in range(10):
            with lock:
                x.add_(1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert x.tolist() == [41] * 8


def test_backward_in_several_threads() -> None:
    w = torch.ones(4, device="neuron", requires_grad=True)

    def work(scale: int) -> list[float]:
        (grad,) = torch.autograd.grad((w * scale).sum(), w)
        return grad.tolist()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [[float(i)] * 4 for i in range(4)]


def test_allocating_and_freeing_keeps_the_figures_right() -> None:
    gc.collect()  # Earlier tests' garbage would be freed in between.
    before = torch.neuron.memory_allocated()

    def work(_: int) -> None:
        for size in range(1, 100):
            torch.empty(size, device="neuron")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert torch.neuron.memory_allocated() == before


def test_random_numbers_of_threads_differ() -> None:
    torch.manual_seed(0)
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda _: tuple(torch.rand(4, device="neuron").tolist()), range(8)))
    assert len(set(drawn)) == len(drawn)
