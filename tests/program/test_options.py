"""Compile options that follow from the module."""

import torch

from torchneuron.program.options import module_flags, xla_flags
from torchneuron.program.session import flags_of


def test_only_the_host_plugin_has_options_for_a_module() -> None:
    assert module_flags("neuron", reduces_rows=True, small=True) == {}
    assert module_flags("cpu", reduces_rows=False, small=False) == {}
    small = module_flags("cpu", reduces_rows=True, small=True)
    assert len(small) == 3
    assert not small.keys() & xla_flags("cpu").keys()


def test_the_plugin_knows_them() -> None:
    # A plugin refuses an option that it does not know, and with it the program.
    assert flags_of(reduces_rows=True, small=True)
    x = torch.arange(20.0).reshape(4, 5)
    torch.testing.assert_close(x.to("neuron").softmax(-1).cpu(), x.softmax(-1))
