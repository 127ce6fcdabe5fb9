"""The tables: their arithmetic, and that they are constant."""

import dataclasses
from typing import Any

import pytest

from torchneuron.settings import Settings
from torchneuron.targets import TARGETS, current_target, device_memory_limit, get_target

GIB = 1 << 30


def test_names_and_aliases() -> None:
    assert list(TARGETS) == ["trn2", "trn3"]
    assert get_target("TRN2") is get_target("gen3") is TARGETS["trn2"]
    assert get_target("gen4").name == "trn3"
    with pytest.raises(ValueError, match="'trn1' is not a target: choose trn2 or trn3"):
        get_target("trn1")


@pytest.mark.parametrize(("name", "share"), [("trn2", 24 * GIB), ("trn3", 36 * GIB)])
def test_a_device_is_a_logical_core(name: str, share: int) -> None:
    target = get_target(name)
    assert target.logical_cores() == 4
    assert target.logical_cores(1) == 8
    assert target.hbm_bytes_per_device() == share
    assert target.hbm_bytes_per_device(1) == share // 2
    assert target.tflops_per_device("bfloat16") == 158
    assert target.hbm_bandwidth_per_device() * 4 == target.hbm_bytes_per_second
    with pytest.raises(ValueError, match="configuration 3: set 1 or 2"):
        target.logical_cores(3)


def test_the_matrix_peak_is_the_clock_times_the_array() -> None:
    for target in TARGETS.values():
        peak = target.partitions * target.partitions * 2 * target.tensor_clock_hz / 1e12
        assert target.core_tflops["bfloat16"] == pytest.approx(peak, rel=0.01)


def test_what_differs_by_chip() -> None:
    trn2, trn3 = TARGETS["trn2"], TARGETS["trn3"]
    assert trn3.dtypes - trn2.dtypes == {"float8_e4m3fn", "mxfloat8", "mxfloat4"}
    for target in (trn2, trn3):
        assert not {"float64", "complex128", "bool"} & target.dtypes
        assert target.sbuf_usable_bytes_per_partition * target.partitions < target.sbuf_bytes


def test_tables_are_constant() -> None:
    target: Any = TARGETS["trn2"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        target.hbm_bytes = 0
    with pytest.raises(TypeError):
        target.chip_tflops["float32"] = 0


def test_memory_limit() -> None:
    assert device_memory_limit(Settings({})) == 24 * GIB
    assert device_memory_limit(Settings({"NEURON_LOGICAL_NC_CONFIG": "1"})) == 12 * GIB
    assert device_memory_limit(Settings({"TORCHNEURON_TARGET": "trn3"})) == 36 * GIB
    assert device_memory_limit(Settings({"TORCHNEURON_MEMORY_LIMIT": "1M"})) == 1 << 20
    assert current_target(Settings({"NEURON_PLATFORM_TARGET_OVERRIDE": "gen4"})).name == "trn3"
