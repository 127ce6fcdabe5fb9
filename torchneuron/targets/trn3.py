"""Trainium3: eight NeuronCores v4 per chip.

Sources, pages of the AWS Neuron documentation (SDK 2.32):
[A] about-neuron/arch/neuron-hardware/{trainium3,neuron-core-v4,trn3-arch}.rst
[B] nki/guides/architecture/trainium3_arch.rst
[C] nki/get-started/about/nki-dma-overview.rst, nki/deep-dives/nki-dma-bandwidth-guide.rst
[D] about-neuron/arch/neuron-features/data-types.rst
[E] compiler/error-codes/, compiler/neuronx-cc/api-reference-guide/index.rst
[H] constants header of nkipy (Apache-2.0)

Figures per chip and per core are published apart and do not multiply exactly (8 x 79 is not 671):
use those per core for the cost of a program, those per chip as the advertised peaks.
"""

from __future__ import annotations

from types import MappingProxyType

from torchneuron.targets.target import GB, GIB, KIB, MIB, TB, Engine, Target, table

TRN3 = Target(
    name="trn3",
    chip="Trainium3",
    core="NeuronCore-v4",
    aliases=("gen4",),
    # [A]
    physical_cores=8,
    logical_configs=(1, 2),
    default_logical_config=2,
    hbm_bytes=144 * GIB,
    hbm_bytes_per_second=4.9 * TB,  # [B] says 4.7
    hbm_stacks=4,
    dma_engines=128,
    dma_bytes_per_second=4.9 * TB,
    collective_cores=16,
    link_bytes_per_second=2560 * GB,
    chip_tflops=table(
        {
            "float8": 2517,
            "mxfloat8": 2517,
            "mxfloat4": 2517,
            "bfloat16": 671,
            "float16": 671,
            "tfloat32": 671,
            "float32": 183,
            "sparse": 2517,
        }
    ),
    # [B]
    sbuf_bytes=32 * MIB,
    sbuf_usable_bytes_per_partition=245752,  # [H], of 256 KiB
    psum_bytes=2 * MIB,
    partitions=128,
    core_tflops=table(
        {
            # The one published figure for 8 bits per core is for the MX formats.
            "mxfloat8": 315,
            "mxfloat4": 315,
            "bfloat16": 79,
            "float16": 79,
            "tfloat32": 79,
            "float32": 20,
            "sparse": 315,
        }
    ),
    vector_engine=Engine(
        clock_hz=1.2e9,
        elements_per_cycle=MappingProxyType(
            {"bfloat16": 512, "float16": 512, "float8": 512, "other": 256}
        ),
        tflops=table({"float32": 1.2}),
    ),
    scalar_engine=Engine(
        clock_hz=1.2e9,
        elements_per_cycle=MappingProxyType({"16-bit": 256, "8-bit": 256, "other": 128}),
        tflops=table({"float32": 1.2}),
    ),
    tensor_clock_hz=2.4e9,
    gpsimd_clock_hz=1.2e9,
    # [C]: the peak is theory, the other figure what a kernel gets
    core_dma_engines=16,
    dma_engine_peak_bytes_per_second=38.4 * GB,
    dma_engine_bytes_per_second=33 * GB,
    # [D], [E]; NKI and the runtime add the narrow integers
    dtypes=frozenset(
        {
            "float32",
            "tfloat32",
            "bfloat16",
            "float16",
            "float8_e5m2",
            "float8_e4m3",
            "float8_e4m3fn",
            "float8_e3m4",
            "mxfloat8",
            "mxfloat4",
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
            "float8_e4m3": "refused by chips after this one (NCC_EVRF052)",
            "float8_e4m3fn": "OCP, largest value 448",
            "mxfloat8": "groups of 32 share a scale",
            "mxfloat4": "groups of 32 share a scale",
        }
    ),
)

assert TRN3.sbuf_bytes == TRN3.partitions * 256 * KIB
