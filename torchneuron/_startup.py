"""Registers the device with PyTorch. Light: nothing here loads a plugin, MLIR or the lowering."""

import atexit
import os
import sys
from typing import Any

import torch
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)

from torchneuron import _C
from torchneuron._untraced import untraced
from torchneuron.settings import settings
from torchneuron.targets import current_target, device_memory_limit

DEVICE = "neuron"
# What `configure` tells the core; changes from Python reach it until the client starts.
_CONFIGURED = ("logical_nc_config", "memory_limit", "num_devices", "target", "visible_cores")
_registered = False


def register() -> None:
    """Name the device, register the kernels and ``torch.neuron``; does nothing the second time.

    Raises RuntimeError if another backend has already taken PyTorch's one slot for private devices,
    ValueError for a setting with a wrong value.
    """
    global _registered
    if _registered:
        return
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", DEVICE):
        raise RuntimeError(
            f"torchneuron cannot register the device {DEVICE!r}: another backend has registered "
            f"{taken!r}, and PyTorch has one such slot per process. Uninstall one of the two, or "
            "set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import the one you want."
        )
    _configure()
    rename_privateuse1_backend(DEVICE)
    _C.set_callbacks(_operand_arguments, _resolve, _announce_fallback)
    _C.set_eager_mode(settings.eager)
    _C.set_program_bound(settings.programs)
    _C.register_kernels()
    settings.on_change(_setting_changed)
    from torchneuron import _artifacts, device
    from torchneuron.device import sharing
    from torchneuron.eager import recurrent

    torch._register_device_module(DEVICE, device)  # type: ignore[no-untyped-call]
    sys.modules[f"torch.{DEVICE}"] = device
    generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    sharing.register()
    _artifacts.register()
    recurrent.register()
    # PyTorch's own default for devices of its private slot is float16. Other threads start with that.
    torch.set_autocast_dtype(DEVICE, torch.bfloat16)
    atexit.register(_shut_down)
    _registered = True


def _configure() -> None:
    _C.configure(_device_count(), device_memory_limit(), _client_config)


def _device_count() -> int:
    """Devices of this process: what the user asked for, else one chip's logical cores."""
    on_chip = current_target().logical_cores(settings.logical_nc_config)
    return settings.requested_devices() or on_chip


def _client_config() -> tuple[str, dict[str, Any]]:
    """The plugin and its options; called once, when a tensor first needs the device."""
    from torchneuron.program.plugin import client_options, find_plugin

    plugin = find_plugin()
    settings.freeze("start")
    # XLA plugins report their own set-up on stderr unless told not to, before they are loaded.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    return plugin.path, client_options(plugin, _C.device_count())


# The ways from the core into Python import what they need at the first call.


@untraced
def _operand_arguments(op: str) -> list[str]:
    from torchneuron.eager.calls import operand_arguments

    return operand_arguments(op)


@untraced
def _resolve(*call: Any) -> dict[str, Any]:
    from torchneuron.eager.miss import resolve

    _serve_windows()
    return resolve(*call)


@untraced
def _announce_fallback(op: str, reason: str) -> None:
    from torchneuron.eager.fallback import announce

    announce(op, reason)


def _shut_down() -> None:
    _C.shutdown()
    service = sys.modules.get("torchneuron.adaptive.service")
    if service is not None:
        service.end()


def _serve_windows() -> None:
    """Start what compiles windows, if there may be any."""
    if settings.eager == "adaptive":
        from torchneuron.adaptive import service

        service.start()


def _setting_changed(name: str, value: object) -> None:
    if name == "eager":
        _C.set_eager_mode(str(value))
        # Operations that are known by now will not ask for it.
        _serve_windows()
    elif name == "programs":
        _C.set_program_bound(settings.programs)
    elif name == "fallback":
        _C.forget_programs()
    elif name in _CONFIGURED:
        _configure()
