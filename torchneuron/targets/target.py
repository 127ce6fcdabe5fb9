"""What a target's table holds. Sizes in bytes, rates per second; peaks are dense unless named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GB, TB = 10**9, 10**12


def table(values: Mapping[str, float]) -> Mapping[str, float]:
    """A mapping that cannot be changed."""
    return MappingProxyType(dict(values))


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """One engine of a physical core."""

    clock_hz: float
    # By dtype or by width of the data; "other" is what nothing else names.
    elements_per_cycle: Mapping[str, int]
    tflops: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One chip and its cores, as AWS documents them; no figure here was measured."""

    name: str
    chip: str
    core: str
    aliases: tuple[str, ...]

    # Per chip.
    physical_cores: int
    logical_configs: tuple[int, ...]
    default_logical_config: int
    hbm_bytes: int
    hbm_bytes_per_second: float
    hbm_stacks: int
    dma_engines: int
    dma_bytes_per_second: float
    collective_cores: int
    link_bytes_per_second: float
    chip_tflops: Mapping[str, float]

    # Per physical core.
    sbuf_bytes: int
    sbuf_usable_bytes_per_partition: int
    psum_bytes: int
    partitions: int
    core_tflops: Mapping[str, float]
    vector_engine: Engine
    scalar_engine: Engine
    tensor_clock_hz: float
    gpsimd_clock_hz: float
    core_dma_engines: int
    dma_engine_peak_bytes_per_second: float
    dma_engine_bytes_per_second: float

    # What the compiler takes. A dtype with a note works only as the note says.
    dtypes: frozenset[str]
    dtype_notes: Mapping[str, str]

    def logical_cores(self, logical_config: int | None = None) -> int:
        """Logical cores, that is devices, per chip."""
        return self.physical_cores // self._config(logical_config)

    def hbm_bytes_per_device(self, logical_config: int | None = None) -> int:
        """The share of the chip's memory that one logical core has."""
        return self.hbm_bytes // self.logical_cores(logical_config)

    def hbm_bandwidth_per_device(self, logical_config: int | None = None) -> float:
        """The share of the chip's memory bandwidth that one logical core has."""
        return self.hbm_bytes_per_second / self.logical_cores(logical_config)

    def tflops_per_device(self, dtype: str, logical_config: int | None = None) -> float:
        """The dense matrix peak of one logical core; KeyError for a dtype without one."""
        return self.core_tflops[dtype] * self._config(logical_config)

    def _config(self, logical_config: int | None) -> int:
        config = self.default_logical_config if logical_config is None else logical_config
        if config not in self.logical_configs:
            allowed = " or ".join(map(str, self.logical_configs))
            raise ValueError(
                f"{self.name} has no logical core configuration {config}: set {allowed}."
            )
        return config
