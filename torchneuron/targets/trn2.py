"""Trainium2: eight NeuronCores v3 per chip.

Sources, pages of the AWS Neuron documentation (SDK 2.32):
[A] about-neuron/arch/neuron-hardware/{trainium2,neuron-core-v3,trn2-arch}.rst
[B] nki/guides/architecture/trainium2_arch.rst
[C] nki/get-started/about/nki-dma-overview.rst, nki/deep-dives/nki-dma-bandwidth-guide.rst
[D] about-neuron/arch/neuron-features/data-types.rst
[E] compiler/error-codes/, compiler/neuronx-cc/api-reference-guide/index.rst
[H] constants header of nkipy (Apache-2.0)

Figures per chip and per core are published apart and do not multiply exactly (8 x 79 is not 667):
use those per core for the cost of a program, those per chip as the advertised peaks.
"""

from __future__ import annotations

from types import MappingProxyType

from torchneuron.targets.target import GB, GIB, KIB, MIB, TB, Engine, Target, table

TRN2 = Target(
    name="trn2",
    chip="Trainium2",
    core="NeuronCore-v3",
    aliases=("gen3",),
    # [A]
    physical_cores=8,
    logical_configs=(1, 2),
    default_logical_config=2,
    hbm_bytes=96 * GIB,
    hbm_bytes_per_second=2.9 * TB,  # [B] rounds it to 3.0
    hbm_stacks=4,
    dma_engines=128,
    dma_bytes_per_second=3.5 * TB,
    collective_cores=16,  # [B] says 20
    link_bytes_per_second=1280 * GB,
    chip_tflops=table(
        {
            "float8": 1299,
            "bfloat16": 667,
            "float16": 667,
            "tfloat32": 667,
            "float32": 181,
            "sparse": 2563,
        }
    ),
    # [B]
    sbuf_bytes=28 * MIB,
    sbuf_usable_bytes_per_partition=212984,  # [H], of 224 KiB
    psum_bytes=2 * MIB,
    partitions=128,
    core_tflops=table(
        {
            "float8": 158,
            "bfloat16": 79,
            "float16": 79,
            "tfloat32": 79,
            "float32": 20,
            "sparse": 316,
        }
    ),
    vector_engine=Engine(
        clock_hz=0.96e9,
        elements_per_cycle=MappingProxyType({"bfloat16": 512, "float16": 512, "other": 256}),
        tflops=table({"float32": 1.0}),
    ),
    scalar_engine=Engine(
        clock_hz=1.2e9,
        elements_per_cycle=MappingProxyType({"other": 128}),
        tflops=table({"float32": 1.2}),
    ),
    tensor_clock_hz=2.4e9,
    gpsimd_clock_hz=1.2e9,
    # [C]: the peak is theory, the other figure what a kernel gets
    core_dma_engines=16,
    dma_engine_peak_bytes_per_second=27.2 * GB,
    dma_engine_bytes_per_second=23 * GB,
    # [D], [E]; NKI and the runtime add the narrow integers
    dtypes=frozenset(
        {
            "float32",
            "tfloat32",
            "bfloat16",
            "float16",
            "float8_e5m2",
            "float8_e4m3",
            "float8_e3m4",
            "uint8",
            "int8",
            "int16",
            "uint16",
            "int32",
            "uint32",
            "int64",
            "uint64",
            "complex64",
        }
    ),
    dtype_notes=MappingProxyType(
        {
            "int64": "32-bit unless the compiler runs with --native-int64=enabled",
            "uint64": "constants beyond 32 bits are refused (NCC_ESFH002)",
            "complex64": "thirty operations only, since SDK 2.32 (NCC_EVRF004 for the others)",
            "float8_e4m3": "IEEE style, largest value 240",
            "float8_e4m3fn": "refused (NCC_EVRF051) without the compiler's "
            "--experimental-unsafe-fp8e4m3fn-as-fp8e4m3",
        }
    ),
)

assert TRN2.sbuf_bytes == TRN2.partitions * 224 * KIB
