"""Run a tiny program through a plugin and say how it went: ``python -m torchneuron.cli.probe SO``.

A program of its own, because a broken plugin may abort the process that loads it.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

_MODULE = b"""
func.func @main(%a: tensor<4xui8>) -> tensor<4xui8> {
  %sum = stablehlo.add %a, %a : tensor<4xui8>
  return %sum : tensor<4xui8>
}
"""
_UINT8 = 6  # PJRT_Buffer_Type_U8


def probe(path: str) -> dict[str, Any]:
    """What the plugin is and whether it adds; RuntimeError with the plugin's text if it fails."""
    import torch  # noqa: F401  # the core is linked against its libraries

    pjrt: Any = import_module("torchneuron._C").pjrt
    client = pjrt.Client(path)
    program = client.compile(_MODULE, 0)
    argument = client.buffer(bytes([1, 2, 3, 4]), 4, _UINT8, [4], 0)
    result = program.execute([argument])[0].to_bytes()
    return {
        "platform": client.platform_name,
        "platform_version": client.platform_version,
        "api_version": list(client.api_version),
        "missing_entries": pjrt.Plugin(path).missing_entries,
        "devices": client.device_count,
        "device_kind": client.device_kind(0),
        "adds": result == bytes([2, 4, 6, 8]),
    }


if __name__ == "__main__":
    print(json.dumps(probe(sys.argv[1])))
