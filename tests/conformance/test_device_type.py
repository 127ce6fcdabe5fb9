"""PyTorch's device-generic test harness on the device, for a test class that knows nothing of it."""

from pathlib import Path

from tests.conftest import RunPython

_BASE = Path(__file__).with_name("device_base.py")

# As in PyTorch's test_ops.py and test_modules.py.
_CLASS = """
import unittest
import torch
from torch.testing._internal.common_device_type import (
    deviceCountAtLeast, dtypes, instantiate_device_type_tests, onlyCPU, ops)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_utils import TestCase

OPS = [op for op in op_db if op.name in ("add", "cumsum", "matmul", "nn.functional.gelu", "sort")]
MODULES = [info for info in module_db if info.name in ("nn.Linear", "nn.LayerNorm")]

class TestAnything(TestCase):
    @ops(OPS, allowed_dtypes=(torch.float32, torch.int64))
    def test_compare_cpu(self, device, dtype, op):
        on_cpu = lambda item: item.cpu() if isinstance(item, torch.Tensor) else item
        for sample in list(op.sample_inputs(device, dtype))[:3]:
            assert sample.input.device.type == torch.device(device).type
            expected = sample.transform(on_cpu)
            self.assertEqual(
                op(sample.input, *sample.args, **sample.kwargs),
                op(expected.input, *expected.args, **expected.kwargs),
                atol=1e-3, rtol=1e-3, exact_device=False)

    @ops(OPS, allowed_dtypes=(torch.float32,))
    def test_noncontiguous_samples(self, device, dtype, op):
        for sample in list(op.sample_inputs(device, dtype))[:3]:
            gaps = sample.noncontiguous()
            self.assertEqual(
                op(gaps.input, *gaps.args, **gaps.kwargs),
                op(sample.input, *sample.args, **sample.kwargs))

    @modules(MODULES)
    def test_forward(self, device, dtype, module_info, training):
        for given in module_info.module_inputs_func(
                module_info, device=device, dtype=dtype, requires_grad=False, training=training):
            built, called = given.constructor_input, given.forward_input
            module = module_info.module_cls(*built.args, **built.kwargs).to(device, dtype)
            assert module(*called.args, **called.kwargs).device.type == torch.device(device).type

    @dtypes(torch.float32, torch.bool)
    def test_dtypes(self, device, dtype):
        self.assertEqual(torch.ones(3, device=device, dtype=dtype).sum().item(), 3)

    @onlyCPU
    def test_only_cpu(self, device):
        self.assertEqual(device, "cpu")

    @deviceCountAtLeast(1)
    def test_devices(self, devices):
        self.assertEqual(torch.device(devices[0]).index, 0)
"""
_RUN = """
suite = unittest.defaultTestLoader.loadTestsFromTestCase({name})
result = unittest.TextTestRunner().run(suite)
assert result.wasSuccessful()
assert not any("skip" not in str(test) and "only_cpu" not in str(test) for test, _ in result.skipped)
print(suite.countTestCases())
"""


def test_only_for_neuron(run_python: RunPython) -> None:
    instantiated = 'instantiate_device_type_tests(TestAnything, globals(), only_for="neuron")\n'
    check = "assert not [name for name in globals() if name == 'TestAnythingCPU']\n"
    done = run_python(_CLASS + instantiated + check + _RUN.format(name="TestAnythingPRIVATEUSE1"))
    assert int(done.stdout) > 20


def test_torch_test_devices(run_python: RunPython) -> None:
    instantiated = "instantiate_device_type_tests(TestAnything, globals(), except_for='cpu')\n"
    script = _CLASS + instantiated + _RUN.format(name="TestAnythingNEURON")
    done = run_python(script, TORCH_TEST_DEVICES=str(_BASE))
    assert int(done.stdout) > 20
