"""The one table of settings: every knob's name, type, default, meaning, stage and variables.

    from torchneuron.settings import settings

    settings.fallback            # read from TORCHNEURON_FALLBACK at the first use, then kept
    settings.fallback = "error"  # from Python; wins over the environment

Each setting has a variable ``TORCHNEURON_<NAME>``. Variables that Neuron users already set stand
behind it as aliases and count only when the first is unset. An empty variable is an unset one.
Nothing is read at import, and a bad value is a ValueError that names the variable and what it may
hold, raised where the setting is first needed.

A stage says who reads a setting, and so until when it can be changed:

* ``start``: once, when the device starts; assigning later raises.
* ``compile``: for every program compiled.
* ``call``: for every operation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Literal, NamedTuple, TypeVar, cast, overload

__all__ = ["Kind", "Row", "Setting", "Settings", "Stage", "describe", "settings"]

T = TypeVar("T")
Stage = Literal["start", "compile", "call"]
Fallback = Literal["warn", "allow", "error"]
Eager = Literal["adaptive", "strict", "blocking"]
Target = Literal["trn2", "trn3"]

_PREFIX = "TORCHNEURON_"


class Kind(Generic[T]):
    """A type of setting: how text becomes a value, and which Python values it takes as they are.

    ``parse`` and ``check`` raise ValueError or TypeError without a text; Setting, which knows the
    variable, makes the message from ``allowed``.
    """

    def __init__(
        self,
        name: str,
        allowed: str,
        parse: Callable[[str], T],
        check: Callable[[object], T],
    ) -> None:
        """``name`` is for the documentation, ``allowed`` ends the sentence "it must be ..."."""
        self.name = name
        self.allowed = allowed
        self.parse = parse
        self.check = check


class Row(NamedTuple):
    """One setting as the documentation and the command line show it."""

    name: str
    variable: str
    aliases: tuple[str, ...]
    type: str
    allowed: str
    default: str
    value: object
    source: str
    meaning: str
    stage: Stage


class Setting(Generic[T]):
    """A row of the table, and the property through which Settings shows its value."""

    name: str
    variable: str

    def __init__(
        self,
        kind: Kind[T],
        default: T | Callable[[Mapping[str, str]], T],
        meaning: str,
        stage: Stage,
        *,
        aliases: Mapping[str, Kind[T] | None] | None = None,
        default_text: str = "",
    ) -> None:
        """``aliases`` are other variables, with their own kind where they speak another language.

        A callable ``default`` gets the environment; ``default_text`` then says what it gives.
        """
        self.kind = kind
        self.meaning = meaning
        self.stage = stage
        self.aliases = {variable: other or kind for variable, other in (aliases or {}).items()}
        self._default = default
        self.default_text = default_text or str(default)

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the name, and with it the variable, from the attribute."""
        self.name = name
        self.variable = _PREFIX + name.upper()

    @overload
    def __get__(self, instance: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, instance: Settings, owner: type) -> T: ...
    def __get__(self, instance: Settings | None, owner: type) -> Setting[T] | T:
        """The value, read from the environment at the first use; on the class, the row itself."""
        if instance is None:
            return self
        known = instance.values.get(self.name)
        if known is None:
            known = instance.values.setdefault(self.name, self.read(instance.environ))
        return cast(T, known[0])

    def __set__(self, instance: Settings, value: T | str) -> None:
        """``Settings.assign``."""
        instance.assign(self, value)

    def read(self, environ: Mapping[str, str]) -> tuple[T, str]:
        """The value by the environment or the default, and where it came from."""
        for variable, kind in {self.variable: self.kind, **self.aliases}.items():
            text = environ.get(variable, "").strip()
            if text:
                return _parsed(kind, variable, text), variable
        default = self._default(environ) if callable(self._default) else self._default
        return default, "default"

    def checked(self, value: object) -> T:
        """A value given from Python: text as in the variable, or a value of the type."""
        where = f"settings.{self.name}"
        if isinstance(value, str):
            return _parsed(self.kind, where, value.strip())
        try:
            return self.kind.check(value)
        except (TypeError, ValueError):
            raise _not_allowed(self.kind, where, value) from None


def _parsed(kind: Kind[T], where: str, text: str) -> T:
    try:
        return kind.parse(text)
    except (TypeError, ValueError):
        raise _not_allowed(kind, where, text) from None


def _not_allowed(kind: Kind[T], where: str, value: object) -> ValueError:
    return ValueError(f"{where}={value!r} is not allowed: it must be {kind.allowed}.")


# --- kinds -------------------------------------------------------------------------------------


def _choice(allowed: Iterable[T], synonyms: Mapping[str, T] | None = None) -> Kind[T]:
    values = {str(value): value for value in allowed}
    texts = {**values, **(synonyms or {})}
    names = [*values]
    listed = ", ".join(names[:-1]) + " or " + names[-1]

    def parse(text: str) -> T:
        if text.lower() not in texts:
            raise ValueError
        return texts[text.lower()]

    return Kind("choice", listed, parse, lambda value: parse(str(value)))


_SWITCH = {"1": True, "on": True, "true": True, "yes": True}
_SWITCH |= {"0": False, "off": False, "false": False, "no": False}


def _parse_switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError
    return _SWITCH[text.lower()]


def _check_switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _parse_bytes(text: str) -> int:
    digits = text.upper().removesuffix("B").removesuffix("I")
    shift = {"K": 10, "M": 20, "G": 30, "T": 40}.get(digits[-1:], 0)
    digits = digits[:-1] if shift else digits
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError
    return int(digits) << shift


def _check_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError
    return value


def _parse_number(text: str) -> int:
    return _check_number(_parse_bytes(text))


def _check_number(value: object) -> int:
    number = _check_count(value)
    if not number:
        raise ValueError
    return number


def _optional_bytes(text: str) -> int | None:
    return _parse_bytes(text) or None


def _check_optional(value: object) -> int | None:
    return None if value is None else _check_count(value) or None


def _parse_path(text: str) -> str | None:
    return os.path.expanduser(text) or None


def _check_path(value: object) -> str | None:
    return None if value is None else os.fspath(cast("os.PathLike[str]", value))


def _parse_name(text: str) -> str | None:
    # Only a path is expanded: a bare word is the name of an installed package.
    return _parse_path(text) if os.sep in text else text or None


def _parse_cores(text: str) -> tuple[int, ...]:
    """``0-3,5`` to (0, 1, 2, 3, 5): indices and inclusive ranges, none twice."""
    cores: list[int] = []
    for item in text.split(","):
        first, dash, last = item.strip().partition("-")
        if not (first.isdigit() and (last.isdigit() or not dash)):
            raise ValueError
        cores.extend(range(int(first), int(last or first) + 1) or [-1])
    return _check_cores(cores) or ()


def _check_cores(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, Iterable):
        raise TypeError
    cores = tuple(_check_count(core) for core in value)
    if not cores or len(set(cores)) != len(cores):
        raise ValueError
    return cores


def _parse_flags(text: str) -> tuple[str, ...]:
    import shlex  # not worth its import time unless the variable is set

    return tuple(shlex.split(text))


def _check_flags(value: object) -> tuple[str, ...]:
    if not isinstance(value, Iterable) or not all(isinstance(flag, str) for flag in value):
        raise ValueError
    return tuple(value)


def _default_cache_dir(environ: Mapping[str, str]) -> str | None:
    """None where there is no home directory: such a process keeps programs in memory only."""
    root = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(root, "torchneuron") if os.path.isabs(root) else None


_FALLBACK: Kind[Fallback] = _choice(("warn", "allow", "error"))
_EAGER: Kind[Eager] = _choice(("adaptive", "strict", "blocking"))
_LAUNCH = _choice(("0", "1"))
_LAUNCH_BLOCKING: Kind[Eager] = Kind(
    "choice",
    _LAUNCH.allowed,
    lambda text: "blocking" if _LAUNCH.parse(text) == "1" else "adaptive",
    _EAGER.check,
)
# NKI users name the generations; there they mean the cores of the same chips.
_TARGET: Kind[Target] = _choice(("trn2", "trn3"), {"gen3": "trn2", "gen4": "trn3"})
_SWITCHES = Kind(
    "switch", "1, on, true or yes; or 0, off, false or no", _parse_switch, _check_switch
)
_BYTES_TEXT = "a number of bytes, with K, M, G or T (powers of 1024) behind it if you like"
_BYTES = Kind("bytes", _BYTES_TEXT, _parse_bytes, _check_count)
_LIMIT = Kind("bytes", _BYTES_TEXT, _optional_bytes, _check_optional)
_NUMBER = Kind("number", "a whole number of at least 1", _parse_number, _check_number)
_COUNT = Kind("count", "a whole number, 0 for all", _optional_bytes, _check_optional)
_PATH = Kind("directory", "a path", _parse_path, _check_path)
_PLUGIN = Kind("name", "the path of a PJRT .so or the name of a package", _parse_name, _check_path)
_CORES = Kind(
    "cores",
    "core numbers and inclusive ranges without repeats, such as 0-3,5",
    _parse_cores,
    _check_cores,
)
_LNC: Kind[int] = _choice((1, 2))
_FLAGS = Kind("flags", "command line flags, quoted as in a shell", _parse_flags, _check_flags)


class Settings:
    """The table, and one process's values of it. Thread-safe; a fork keeps the values."""

    fallback = Setting(
        _FALLBACK,
        "warn",
        "What happens to an operation that cannot run on the device: it runs on the CPU with one "
        "warning per operation, silently, or not at all.",
        "call",
    )
    eager = Setting(
        _EAGER,
        "adaptive",
        "How eager operations run: stretches that repeat as one program each, one program per operation, "
        "or also waiting for each to end, so that an error is raised by the call that caused it.",
        "call",
        aliases={"NEURON_LAUNCH_BLOCKING": _LAUNCH_BLOCKING},
    )
    stack_trace = Setting(
        _SWITCHES,
        True,
        "Keep the Python line that issued an operation, for errors that surface later.",
        "call",
        default_text="on",
    )
    cache = Setting(_SWITCHES, True, "Keep compiled programs on disk.", "start", default_text="on")
    cache_dir = Setting(
        _PATH,
        _default_cache_dir,
        "Where compiled programs are kept. They are executable code: use a directory that only "
        "people you trust can write.",
        "start",
        default_text="~/.cache/torchneuron",
    )
    cache_size = Setting(
        _BYTES,
        4 << 30,
        "How much the cache may hold; the least recently used programs go first.",
        "start",
        default_text="4G",
    )
    programs = Setting(
        _NUMBER,
        8192,
        "How many programs of single operations stay loaded; those not used for longest go first, "
        "and come back from the cache.",
        "call",
    )
    dump = Setting(
        _PATH,
        None,
        "A directory for the signature, FX graph and StableHLO of every program compiled.",
        "compile",
        default_text="none",
    )
    cc_flags = Setting(
        _FLAGS,
        (),
        "Flags for the Neuron compiler, part of a program's cache key.",
        "compile",
        aliases={"NEURON_CC_FLAGS": None},
        default_text="none",
    )
    plugin = Setting(
        _PLUGIN,
        None,
        "The PJRT plugin: the path of a .so or the name of an installed package.",
        "start",
        default_text="found",
    )
    target = Setting(
        _TARGET,
        "trn2",
        "The chip that limits, checks and estimates are made for.",
        "start",
        aliases={"NEURON_PLATFORM_TARGET_OVERRIDE": None},
    )
    logical_nc_config = Setting(
        _LNC,
        2,
        "Physical cores per logical core (LNC); a logical core is one device.",
        "start",
        aliases={"NEURON_LOGICAL_NC_CONFIG": None, "NEURON_RT_VIRTUAL_CORE_SIZE": None},
    )
    num_devices = Setting(
        _COUNT,
        None,
        "How many devices this process takes; visible_cores wins over it.",
        "start",
        aliases={"NEURON_RT_NUM_CORES": None},
        default_text="all",
    )
    visible_cores = Setting(
        _CORES,
        None,
        "Which logical cores this process takes.",
        "start",
        aliases={"NEURON_RT_VISIBLE_CORES": None},
        default_text="all",
    )
    memory_limit = Setting(
        _LIMIT,
        None,
        "Memory per device; an allocation beyond it is an out-of-memory error.",
        "start",
        default_text="target's",
    )

    # Without a __dict__ a mistyped name is an error instead of a setting that does nothing.
    __slots__ = ("_frozen", "_listeners", "environ", "values")

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        """Settings read from ``environ``, by default the process's environment."""
        self.environ = os.environ if environ is None else environ
        # name -> (value, source); the table's properties fill it.
        self.values: dict[str, tuple[object, str]] = {}
        self._frozen: set[Stage] = set()
        self._listeners: list[Callable[[str, object], None]] = []

    def requested_devices(self) -> int | None:
        """How many devices the user asked for; None leaves it to the plugin."""
        visible = self.visible_cores
        return len(visible) if visible is not None else self.num_devices

    def freeze(self, stage: Stage) -> None:
        """Make assigning to the settings of `stage` an error: what they decide has been decided."""
        self._frozen.add(stage)

    def on_change(self, listener: Callable[[str, object], None]) -> None:
        """Call ``listener(name, value)`` after every assignment from Python."""
        self._listeners.append(listener)

    def assign(self, setting: Setting[T], value: object) -> None:
        """Set a value from Python.

        Raises ValueError for a value that is not allowed, RuntimeError for one that comes too late.
        """
        checked = setting.checked(value)
        if setting.stage in self._frozen:
            raise RuntimeError(
                f"settings.{setting.name} can no longer be changed: it is read when the device "
                f"starts, and it has started. Set it, or {setting.variable}, before first use."
            )
        self.values[setting.name] = (checked, "Python")
        for listener in self._listeners:
            listener(setting.name, checked)

    def describe(self) -> list[Row]:
        """All settings with their present values; ValueError if a variable holds a bad one."""
        rows = []
        for setting in self.table():
            value = getattr(self, setting.name)
            rows.append(
                Row(
                    name=setting.name,
                    variable=setting.variable,
                    aliases=tuple(setting.aliases),
                    type=setting.kind.name,
                    allowed=setting.kind.allowed,
                    default=setting.default_text,
                    value=value,
                    source=self.values[setting.name][1],
                    meaning=setting.meaning,
                    stage=setting.stage,
                )
            )
        return rows

    def unknown_variables(self) -> list[str]:
        """TORCHNEURON_* variables that no setting has: most likely mistyped."""
        known = {setting.variable for setting in self.table()}
        return sorted(v for v in self.environ if v.startswith(_PREFIX) and v not in known)

    @classmethod
    def table(cls) -> list[Setting[object]]:
        """The rows, in the order in which they are defined."""
        return [row for row in vars(cls).values() if isinstance(row, Setting)]


settings = Settings()


def describe() -> list[Row]:
    """``settings.describe()`` of the process."""
    return settings.describe()
