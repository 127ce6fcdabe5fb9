"""The Philox generator: state, seeds, and how operations advance it."""

import struct

import pytest
import torch


def parts(state: torch.Tensor) -> tuple[int, int]:
    """(seed, offset) of a state."""
    seed, offset = struct.unpack("<QQ", bytes(state.tolist()))
    return seed, offset


def test_state_is_sixteen_bytes_on_the_cpu() -> None:
    torch.neuron.manual_seed(2**63 + 5)
    state = torch.neuron.get_rng_state()
    assert state.device.type == "cpu"
    assert state.dtype == torch.uint8
    assert state.shape == (16,)
    assert parts(state) == (2**63 + 5, 0)
    assert torch.neuron.initial_seed() == 2**63 + 5


def test_random_operations_advance_the_offset_by_multiples_of_four() -> None:
    torch.neuron.manual_seed(1)
    previous = 0
    for size in (1, 5, 1000):
        torch.rand(size, device="neuron")
        seed, offset = parts(torch.neuron.get_rng_state())
        assert seed == 1
        assert offset > previous
        assert offset % 4 == 0
        previous = offset
    torch.zeros(3, device="neuron")
    assert parts(torch.neuron.get_rng_state())[1] == previous


def test_the_same_state_gives_the_same_numbers() -> None:
    torch.neuron.manual_seed(3)
    torch.rand(7, device="neuron")
    state = torch.neuron.get_rng_state()
    first = torch.randn(5, device="neuron").cpu()
    second = torch.randn(5, device="neuron").cpu()
    assert not first.equal(second)
    torch.neuron.set_rng_state(state)
    assert torch.randn(5, device="neuron").cpu().equal(first)
    assert torch.randn(5, device="neuron").cpu().equal(second)


def test_manual_seed_seeds_every_device() -> None:
    torch.manual_seed(11)
    for index in range(torch.neuron.device_count()):
        assert parts(torch.neuron.get_rng_state(index)) == (11, 0)
    a = torch.rand(4, device="neuron:0").cpu()
    b = torch.rand(4, device="neuron:1").cpu()
    assert a.equal(b)
    torch.neuron.manual_seed_all(12)
    assert [g.initial_seed() for g in torch.neuron.default_generators] == [12] * (
        torch.neuron.device_count()
    )


def test_manual_seed_of_the_module_seeds_the_current_device() -> None:
    torch.neuron.manual_seed_all(1)
    with torch.neuron.device(1):
        torch.neuron.manual_seed(5)
        assert torch.neuron.initial_seed() == 5
    assert torch.neuron.initial_seed() == 1
    assert parts(torch.neuron.get_rng_state("neuron:1")) == (5, 0)


def test_seeds_without_a_number() -> None:
    torch.neuron.manual_seed_all(1)
    fresh = torch.neuron.seed()
    assert torch.neuron.initial_seed() == fresh != 1
    assert torch.neuron.default_generators[1].initial_seed() == 1
    torch.neuron.seed_all()
    seeds = {g.initial_seed() for g in torch.neuron.default_generators}
    assert len(seeds) == 1
    assert seeds != {1}
    assert torch.seed() == torch.neuron.initial_seed()


def test_states_of_all_devices() -> None:
    torch.manual_seed(4)
    torch.rand(3, device="neuron:1")
    states = torch.neuron.get_rng_state_all()
    assert len(states) == torch.neuron.device_count()
    expected = [torch.rand(3, device=f"neuron:{i}").cpu() for i in (0, 1)]
    torch.manual_seed(5)
    torch.neuron.set_rng_state_all(states)
    for i, values in enumerate(expected):
        assert torch.rand(3, device=f"neuron:{i}").cpu().equal(values)


def test_fork_rng() -> None:
    torch.manual_seed(6)
    torch.rand(2, device="neuron")
    state = torch.neuron.get_rng_state()
    host_state = torch.get_rng_state()
    with torch.random.fork_rng(devices=[0, 1]):
        torch.manual_seed(9)
        torch.rand(8, device="neuron")
        torch.rand(8)
    assert torch.neuron.get_rng_state().equal(state)
    assert torch.get_rng_state().equal(host_state)
    with torch.random.fork_rng(device_type="neuron", devices=range(2)):
        torch.rand(8, device="neuron")
    assert torch.neuron.get_rng_state().equal(state)


def test_default_generators() -> None:
    generators = torch.neuron.default_generators
    assert len(generators) == torch.neuron.device_count()
    assert generators[1].device == torch.device("neuron:1")
    assert generators[-1].device.index == len(generators) - 1
    assert len(list(generators)) == len(generators)
    with pytest.raises(IndexError, match="does not exist"):
        generators[len(generators)]
    generators[0].manual_seed(8)
    assert torch.neuron.initial_seed() == 8
    assert torch.neuron._get_generator(torch.device("neuron:0")).initial_seed() == 8


def test_own_generators() -> None:
    torch.neuron.manual_seed(1)
    default = torch.neuron.get_rng_state()
    own = torch.Generator("neuron")
    assert own.device == torch.device("neuron:0")
    own.manual_seed(77)
    first = torch.rand(6, device="neuron", generator=own).cpu()
    assert torch.neuron.get_rng_state().equal(default)
    torch.neuron.manual_seed(77)
    assert torch.rand(6, device="neuron").cpu().equal(first)
    own.manual_seed(77)
    x = torch.empty(6, device="neuron").uniform_(generator=own)
    assert torch.randn(3, device="neuron", generator=own).shape == (3,)
    assert own.get_state().shape == (16,)
    assert x.min().item() >= 0


def test_generator_state_round_trip() -> None:
    own = torch.Generator("neuron:1").manual_seed(3)
    torch.rand(4, device="neuron:1", generator=own)
    state = own.get_state()
    copy = own.clone_state()
    a = torch.rand(4, device="neuron:1", generator=own).cpu()
    b = torch.rand(4, device="neuron:1", generator=copy).cpu()
    assert a.equal(b)
    own.set_state(state)
    assert torch.rand(4, device="neuron:1", generator=own).cpu().equal(a)
    offset = own.get_offset()
    own.set_offset(offset + 4)
    assert parts(own.get_state()) == (3, offset + 4)
    assert own.seed() == own.initial_seed()


def test_offset_can_be_edited_in_the_state() -> None:
    """As DTensor's random tracker does."""
    state = torch.neuron.get_rng_state()
    state[8:] = torch.tensor([16], dtype=torch.int64).view(torch.uint8)
    torch.neuron.set_rng_state(state)
    assert torch.neuron.default_generators[0].get_offset() == 16


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (torch.zeros(15, dtype=torch.uint8), RuntimeError),
        (torch.zeros(5056, dtype=torch.uint8), RuntimeError),
        (torch.zeros(16), TypeError),
        (torch.tensor([0] * 8 + [1] + [0] * 7, dtype=torch.uint8), ValueError),
    ],
)
def test_wrong_states_are_refused(state: torch.Tensor, error: type[Exception]) -> None:
    before = torch.neuron.get_rng_state()
    with pytest.raises(error):
        torch.neuron.set_rng_state(state)
    assert torch.neuron.get_rng_state().equal(before)


def test_wrong_generators_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"[Gg]enerator"):
        torch.rand(3, device="neuron", generator=torch.Generator("cpu"))
    with pytest.raises(RuntimeError, match=r"[Gg]enerator|device"):
        torch.rand(3, generator=torch.Generator("neuron"))
    with pytest.raises(ValueError, match="multiple of 4"):
        torch.Generator("neuron").set_offset(3)


def test_dropout_and_randperm_take_the_generator_of_the_device() -> None:
    torch.manual_seed(21)
    x = torch.ones(64, device="neuron")
    first = torch.nn.functional.dropout(x, 0.5).cpu()
    order = torch.randperm(10, device="neuron").cpu()
    torch.manual_seed(21)
    assert torch.nn.functional.dropout(x, 0.5).cpu().equal(first)
    assert torch.randperm(10, device="neuron").cpu().equal(order)
    assert sorted(order.tolist()) == list(range(10))
