"""torchneuron: PyTorch on AWS Trainium, and on the host CPU where there is none.

``import torch`` loads this package through the entry point group ``torch.backends``; it can also be
imported by itself. Loading registers the device ``neuron`` and the module ``torch.neuron``. It
starts no client and no compiler: those start when a tensor first needs the device.
"""

__version__ = "0.1.0"


def _autoload() -> None:
    """What ``import torch`` calls; the work is done by this module's own import."""


# This imports torch, which calls `_autoload` when it loads its backends: it must be there by then.
from torchneuron import _startup  # noqa: E402

_startup.register()
