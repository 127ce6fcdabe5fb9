"""The table of settings: where values come from, what is refused, and when."""

import subprocess
import sys
from pathlib import Path

import pytest

from torchneuron.settings import Settings, describe


def test_defaults(tmp_path: Path) -> None:
    chosen = Settings({"XDG_CACHE_HOME": str(tmp_path)})
    assert chosen.fallback == "warn"
    assert chosen.eager == "adaptive"
    assert chosen.cache is True
    assert chosen.cache_dir == str(tmp_path / "torchneuron")
    assert chosen.cache_size == 4 << 30
    assert chosen.plugin is chosen.dump is chosen.memory_limit is None
    assert chosen.target == "trn2"
    assert chosen.logical_nc_config == 2
    assert chosen.cc_flags == ()
    assert chosen.requested_devices() is None


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("TORCHNEURON_FALLBACK", "Error", "fallback", "error"),
        ("TORCHNEURON_EAGER", "blocking", "eager", "blocking"),
        ("NEURON_LAUNCH_BLOCKING", "1", "eager", "blocking"),
        ("NEURON_LAUNCH_BLOCKING", "0", "eager", "adaptive"),
        ("TORCHNEURON_CACHE", "off", "cache", False),
        ("TORCHNEURON_CACHE_DIR", "/x", "cache_dir", "/x"),
        ("TORCHNEURON_CACHE_SIZE", "512", "cache_size", 512),
        ("TORCHNEURON_CACHE_SIZE", "3k", "cache_size", 3 << 10),
        ("TORCHNEURON_CACHE_SIZE", "2MiB", "cache_size", 2 << 20),
        ("TORCHNEURON_CACHE_SIZE", "1TB", "cache_size", 1 << 40),
        ("TORCHNEURON_MEMORY_LIMIT", "24G", "memory_limit", 24 << 30),
        ("TORCHNEURON_MEMORY_LIMIT", "0", "memory_limit", None),
        ("TORCHNEURON_PLUGIN", "xla-cpu-pjrt", "plugin", "xla-cpu-pjrt"),
        ("TORCHNEURON_TARGET", "trn3", "target", "trn3"),
        ("NEURON_PLATFORM_TARGET_OVERRIDE", "gen4", "target", "trn3"),
        ("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2", "target", "trn2"),
        ("NEURON_LOGICAL_NC_CONFIG", "1", "logical_nc_config", 1),
        ("NEURON_RT_VIRTUAL_CORE_SIZE", "1", "logical_nc_config", 1),
        ("NEURON_RT_NUM_CORES", "4", "num_devices", 4),
        ("NEURON_RT_NUM_CORES", "0", "num_devices", None),
        ("NEURON_RT_VISIBLE_CORES", "0-3,5", "visible_cores", (0, 1, 2, 3, 5)),
        ("NEURON_RT_VISIBLE_CORES", "7", "visible_cores", (7,)),
        ("NEURON_CC_FLAGS", "-O1 --a='b c'", "cc_flags", ("-O1", "--a=b c")),
        ("TORCHNEURON_STACK_TRACE", "no", "stack_trace", False),
        ("TORCHNEURON_FALLBACK", "  ", "fallback", "warn"),
    ],
)
def test_variables(variable: str, text: str, name: str, value: object) -> None:
    assert getattr(Settings({variable: text}), name) == value


@pytest.mark.parametrize(
    ("variable", "text", "name", "allowed"),
    [
        ("TORCHNEURON_FALLBACK", "maybe", "fallback", "warn, allow or error"),
        ("TORCHNEURON_EAGER", "1", "eager", "strict or blocking"),
        ("NEURON_LAUNCH_BLOCKING", "yes", "eager", "0 or 1"),
        ("TORCHNEURON_CACHE", "2", "cache", "on, true"),
        ("TORCHNEURON_CACHE_SIZE", "4Q", "cache_size", "K, M, G or T"),
        ("TORCHNEURON_CACHE_SIZE", "-1", "cache_size", "number of bytes"),
        ("TORCHNEURON_CACHE_SIZE", "G", "cache_size", "number of bytes"),
        ("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1", "target", "trn2 or trn3"),
        ("NEURON_LOGICAL_NC_CONFIG", "3", "logical_nc_config", "1 or 2"),
        ("NEURON_RT_NUM_CORES", "two", "num_devices", "whole number"),
        ("NEURON_RT_VISIBLE_CORES", "3-1", "visible_cores", "0-3,5"),
        ("NEURON_RT_VISIBLE_CORES", "0-2,2", "visible_cores", "without repeats"),
        ("NEURON_RT_VISIBLE_CORES", "0,", "visible_cores", "core numbers"),
        ("NEURON_CC_FLAGS", "'open", "cc_flags", "quoted"),
    ],
)
def test_bad_variables_name_themselves_and_what_is_allowed(
    variable: str, text: str, name: str, allowed: str
) -> None:
    with pytest.raises(ValueError, match=allowed) as caught:
        getattr(Settings({variable: text}), name)
    assert variable in str(caught.value)
    assert text in str(caught.value)


def test_own_variable_wins_over_the_alias() -> None:
    both = Settings({"TORCHNEURON_EAGER": "strict", "NEURON_LAUNCH_BLOCKING": "1"})
    assert both.eager == "strict"


def test_visible_cores_win_over_their_number() -> None:
    both = Settings({"NEURON_RT_NUM_CORES": "8", "NEURON_RT_VISIBLE_CORES": "2-3"})
    assert both.requested_devices() == 2
    assert Settings({"NEURON_RT_NUM_CORES": "8"}).requested_devices() == 8


def test_read_once() -> None:
    environ = {"TORCHNEURON_FALLBACK": "allow"}
    chosen = Settings(environ)
    assert chosen.fallback == "allow"
    environ["TORCHNEURON_FALLBACK"] = "error"
    assert chosen.fallback == "allow"


def test_assignment() -> None:
    chosen = Settings({"TORCHNEURON_FALLBACK": "nonsense"})
    seen: list[tuple[str, object]] = []
    chosen.on_change(lambda name, value: seen.append((name, value)))
    chosen.fallback = "error"
    chosen.visible_cores = (1, 2)
    chosen.cache_dir = Path("/x")  # type: ignore[assignment]  # paths become text
    chosen.logical_nc_config = 1
    assert (chosen.fallback, chosen.visible_cores, chosen.cache_dir) == ("error", (1, 2), "/x")
    assert ("fallback", "error") in seen
    with pytest.raises(ValueError, match=r"settings\.fallback='never'"):
        chosen.fallback = "never"
    with pytest.raises(ValueError, match=r"settings\.cache=1"):
        chosen.cache = 1  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"settings\.visible_cores"):
        chosen.visible_cores = (1, 1)
    with pytest.raises(AttributeError):
        chosen.falback = "error"  # type: ignore[attr-defined]


def test_a_frozen_stage_cannot_be_changed() -> None:
    chosen = Settings({})
    chosen.freeze("start")
    with pytest.raises(RuntimeError, match="TORCHNEURON_PLUGIN, before first use"):
        chosen.plugin = "other"
    chosen.fallback = "allow"
    assert chosen.plugin is None


def test_describe_says_where_values_come_from() -> None:
    chosen = Settings({"NEURON_LAUNCH_BLOCKING": "1"})
    chosen.cache = False
    rows = {row.name: row for row in chosen.describe()}
    assert rows["eager"].source == "NEURON_LAUNCH_BLOCKING"
    assert rows["cache"].source == "Python"
    assert rows["fallback"].source == "default"
    assert all(row.variable == f"TORCHNEURON_{name.upper()}" for name, row in rows.items())
    assert all(row.meaning.endswith(".") and row.stage for row in rows.values())


def test_mistyped_variables_are_found() -> None:
    chosen = Settings({"TORCHNEURON_FALBACK": "error", "TORCHNEURON_CACHE": "1"})
    assert chosen.unknown_variables() == ["TORCHNEURON_FALBACK"]


def test_without_a_home_there_is_no_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert Settings({}).cache_dir is None


def test_documented() -> None:
    from torchneuron.cli.tables import settings_markdown

    page = (Path(__file__).parents[1] / "docs" / "settings.md").read_text()
    assert settings_markdown(describe()) in page


def test_import_is_light() -> None:
    """Alone, the module loads little of the standard library and nothing else."""
    script = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('s', {str(_source())!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "sys.modules['s'] = module\n"
        "spec.loader.exec_module(module)\n"
        "print(*(set(sys.modules) & {'torch', 'dataclasses', 'inspect', 'shlex', 'json', 'ast'}))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def _source() -> Path:
    import torchneuron.settings

    return Path(str(torchneuron.settings.__file__))
