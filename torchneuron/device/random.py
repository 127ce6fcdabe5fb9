"""Random numbers: one Philox generator per device, its state 16 bytes (uint64 seed, int64 offset).

Generators live on the host: seeding one starts nothing.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch

from torchneuron import _C
from torchneuron.device.devices import DeviceLike, index_of


class _Generators(Sequence[torch.Generator]):
    """The default generators by device index."""

    def __getitem__(self, index: int) -> torch.Generator:  # type: ignore[override]
        count = len(self)
        if not -count <= index < count:
            raise IndexError(
                f"neuron:{index} does not exist: this process has {count} neuron device(s)"
            )
        return _C.default_generator(index % count)

    def __len__(self) -> int:
        return _C.device_count()

    def __iter__(self) -> Iterator[torch.Generator]:
        return (self[index] for index in range(len(self)))


default_generators: Sequence[torch.Generator] = _Generators()


def _get_generator(device: DeviceLike) -> torch.Generator:
    """The default generator of ``device``."""
    return _C.default_generator(index_of(device))


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    _get_generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    for generator in default_generators:
        generator.manual_seed(int(seed))


def seed() -> int:
    """Seed the current device's generator with a random number, and return it."""
    return _get_generator(None).seed()


def seed_all() -> None:
    """Seed the generators of all devices with one random number."""
    manual_seed_all(seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _get_generator(None).initial_seed()


def get_rng_state(device: DeviceLike = "neuron") -> torch.Tensor:
    """The state of ``device``'s generator: a CPU uint8 tensor of 16 elements."""
    return _get_generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = "neuron") -> None:
    """Restore a state of ``get_rng_state``. RuntimeError or TypeError if it is not one."""
    _get_generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restore the states of all devices."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
