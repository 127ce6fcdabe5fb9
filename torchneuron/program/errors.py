"""What can go wrong between a StableHLO module and an executable.

ProgramError (RuntimeError)
|- PluginNotFoundError   no PJRT plugin, or not one of them clearly meant
|- NeffError             a file that is not a NEFF of ours, or not intact
`- CompileError          the plugin refused a program

CacheWarning (UserWarning)   the disk cache cannot be used; the run goes on without it
"""

from __future__ import annotations


class ProgramError(RuntimeError):
    """The base of this package's errors."""


class PluginNotFoundError(ProgramError):
    """No usable PJRT plugin; the message says what to install or set."""


class NeffError(ProgramError):
    """Not a NEFF that we wrote, or one that was truncated or altered."""


class CompileError(ProgramError):
    """The plugin's compiler refused a program; the plugin's own error is the ``__cause__``."""


class CacheWarning(UserWarning):
    """The disk cache is off for the rest of this process, and why."""
