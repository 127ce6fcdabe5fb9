"""Streams order work; events mark and time it."""

import time

import pytest
import torch

SLOW = 700


def slow(x: torch.Tensor, rounds: int = 6) -> torch.Tensor:
    """Work that takes a while after it was queued."""
    for _ in range(rounds):
        x = (x @ x).clamp(-1, 1)
    return x


@pytest.fixture(scope="module")
def operand() -> torch.Tensor:
    """A matrix whose products take some milliseconds; the programs are compiled."""
    x = torch.randn(SLOW, SLOW, device="neuron")
    slow(x)
    torch.neuron.synchronize()
    return x


def test_streams_come_from_a_pool() -> None:
    stream = torch.neuron.Stream()
    assert isinstance(stream, torch.Stream)
    assert isinstance(stream, torch.neuron.Stream)
    assert stream.device == torch.device("neuron:0")
    assert stream.stream_id != 0
    other = torch.neuron.Stream("neuron:1", priority=-1)
    assert other.device.index == 1
    assert stream != other
    assert torch.Stream("neuron").device == torch.device("neuron:0")
    assert hash(stream) == hash(
        torch.neuron.Stream(
            stream_id=stream.stream_id,
            device_index=stream.device_index,
            device_type=stream.device_type,
        )
    )


def test_current_stream() -> None:
    default = torch.neuron.default_stream()
    assert torch.neuron.current_stream() == default
    side = torch.neuron.Stream()
    with torch.neuron.stream(side):
        assert torch.neuron.current_stream() == side
        assert torch.accelerator.current_stream() == side
        with torch.neuron.stream(None):
            assert torch.neuron.current_stream() == side
        assert torch.neuron.default_stream() == default
    assert torch.neuron.current_stream() == default
    with side:
        assert torch.neuron.current_stream() == side
    torch.neuron.set_stream(side)
    assert torch.neuron.current_stream() == side
    torch.neuron.set_stream(default)
    with pytest.raises(ZeroDivisionError), torch.neuron.stream(side):
        raise ZeroDivisionError
    assert torch.neuron.current_stream() == default


def test_a_stream_of_another_device_changes_the_device() -> None:
    there = torch.neuron.Stream(1)
    with torch.neuron.stream(there):
        assert torch.neuron.current_device() == 1
        assert torch.neuron.current_stream() == there
        x = torch.ones(2, device="neuron")
    assert x.device.index == 1
    assert torch.neuron.current_device() == 0
    assert torch.neuron.current_stream(1) == torch.neuron.default_stream(1)


def test_work_on_streams_is_ordered_by_data(operand: torch.Tensor) -> None:
    """A value made on one stream is whole on another, also without a wait."""
    side = torch.neuron.Stream()
    with torch.neuron.stream(side):
        y = slow(operand)
    z = y.sum()
    assert z.item() == pytest.approx(y.cpu().sum().item(), rel=1e-3, abs=1)


def test_events_complete_after_the_work_before_them(operand: torch.Tensor) -> None:
    event = torch.neuron.Event()
    assert event.query()  # not recorded: nothing to wait for
    event.synchronize()
    y = slow(operand, 30)
    event.record()
    assert not event.query()
    event.synchronize()
    assert event.query()
    assert torch.neuron.current_stream().query()
    assert y.shape == operand.shape


def test_record_event_on_a_stream(operand: torch.Tensor) -> None:
    side = torch.neuron.Stream()
    with torch.neuron.stream(side):
        slow(operand, 20)
        event = side.record_event()
    assert isinstance(event, torch.Event)
    own = torch.neuron.current_stream().record_event(torch.neuron.Event())
    assert isinstance(own, torch.neuron.Event)
    own.synchronize()  # nothing was issued on the default stream
    side.synchronize()
    assert event.query()
    assert side.query()


def test_an_event_can_be_recorded_again(operand: torch.Tensor) -> None:
    event = torch.neuron.Event()
    event.record()
    event.synchronize()
    slow(operand, 20)
    event.record()
    assert not event.query()
    event.synchronize()


def test_wait_event_orders_streams(operand: torch.Tensor) -> None:
    first, second = torch.neuron.Stream(), torch.neuron.Stream()
    with torch.neuron.stream(first):
        slow(operand, 20)
        done = first.record_event()
    second.wait_event(done)
    with torch.neuron.stream(second):
        torch.zeros(2, device="neuron").add_(1)
        after = second.record_event()
    after.synchronize()
    assert done.query()


def test_wait_stream_orders_streams(operand: torch.Tensor) -> None:
    side = torch.neuron.Stream()
    with torch.neuron.stream(side):
        slow(operand, 20)
        done = side.record_event()
    torch.neuron.current_stream().wait_stream(side)
    torch.zeros(2, device="neuron").add_(1)
    torch.neuron.current_stream().synchronize()
    assert done.query()


def test_event_wait_across_devices(operand: torch.Tensor) -> None:
    slow(operand, 20)
    done = torch.neuron.current_stream().record_event()
    there = torch.neuron.current_stream(1)
    done.wait(there)
    torch.zeros(2, device="neuron:1").add_(1)
    after = there.record_event()
    after.synchronize()
    assert done.query()


def test_elapsed_time(operand: torch.Tensor) -> None:
    start = torch.neuron.Event(enable_timing=True)
    middle = torch.neuron.Event(enable_timing=True)
    end = torch.neuron.Event(enable_timing=True)
    torch.neuron.synchronize()
    before = time.perf_counter()
    start.record()
    slow(operand, 4)
    middle.record()
    slow(operand, 12)
    end.record()
    end.synchronize()
    wall = (time.perf_counter() - before) * 1e3
    first, whole = start.elapsed_time(middle), start.elapsed_time(end)
    assert 0 < first < whole <= wall * 1.05 + 1
    assert middle.elapsed_time(end) == pytest.approx(whole - first, abs=1e-6)
    assert end.elapsed_time(start) == pytest.approx(-whole)


def test_elapsed_time_needs_timing_and_recordings() -> None:
    timed, plain = torch.neuron.Event(enable_timing=True), torch.neuron.Event()
    with pytest.raises(ValueError, match="recorded"):
        timed.elapsed_time(torch.neuron.Event(enable_timing=True))
    timed.record()
    plain.record()
    torch.neuron.synchronize()
    with pytest.raises((RuntimeError, ValueError), match="enable_timing"):
        timed.elapsed_time(plain)


def test_generic_events() -> None:
    event = torch.Event("neuron", enable_timing=True)
    event.record(torch.neuron.current_stream())
    event.synchronize()
    assert event.device.type == "neuron"
    assert event.query()
    with pytest.raises(NotImplementedError, match="between processes"):
        torch.neuron.Event(interprocess=True)


def test_synchronize_waits_for_every_stream(operand: torch.Tensor) -> None:
    events = []
    for _ in range(3):
        stream = torch.neuron.Stream()
        with torch.neuron.stream(stream):
            slow(operand, 6)
            events.append(stream.record_event())
    torch.neuron.synchronize()
    assert all(event.query() for event in events)


def test_record_stream() -> None:
    x = torch.ones(16, device="neuron")
    side = torch.neuron.Stream()
    with torch.neuron.stream(side):
        y = x * 2
    x.record_stream(side)
    del x
    assert y.sum().item() == 32


def test_small_and_large_programs_in_turn() -> None:
    """More programs than may run at once, of which fewer may where some are large."""
    with torch.neuron.eager_mode("strict"):
        small = torch.zeros(4096, device="neuron")
        large = torch.zeros(1 << 20, device="neuron")
        kept = []
        for step in range(300):
            small = small + 1
            kept.append(small)
            if step % 50 == 49:
                large = large + small[0]
    assert torch.equal(torch.stack(kept).cpu()[:, 0], torch.arange(1.0, 301.0))
    assert torch.equal(large.cpu(), torch.full((1 << 20,), 1050.0))
