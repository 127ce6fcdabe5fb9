"""The command, as a user calls it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchneuron.program import DiskCache, Neff

ROOT = Path(__file__).parents[2]
MAIN = "from torchneuron.cli import main; main(prog_name='torchneuron')"


class Command:
    """Runs the command in a process whose variables are only those set here."""

    def __init__(self, cache: Path) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.env = {**kept, "PYTHONPATH": path, "TORCHNEURON_CACHE_DIR": str(cache)}

    def run(self, *arguments: str, code: int = 0, **env: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *arguments],
            capture_output=True,
            text=True,
            env={**self.env, **env},
            timeout=200,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 or not done.stderr else done.stdout + done.stderr

    def json(self, *arguments: str, code: int = 0, **env: str) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code, **env))


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path / "cache")


def test_help_names_the_commands(command: Command) -> None:
    text = command.run("--help")
    assert all(name in text for name in ("doctor", "cache", "settings", "targets"))


def test_settings(command: Command) -> None:
    rows = {row["name"]: row for row in command.json("settings", NEURON_LAUNCH_BLOCKING="1")}
    assert rows["eager"]["value"] == "blocking"
    assert rows["eager"]["source"] == "NEURON_LAUNCH_BLOCKING"
    text = command.run("settings", TORCHNEURON_CACHE_SIZE="3M")
    assert "3.0 MiB" in text
    assert "TORCHNEURON_CACHE_SIZE" in text


def test_a_bad_setting_is_one_line(command: Command) -> None:
    text = command.run("settings", code=1, TORCHNEURON_FALLBACK="maybe")
    assert "TORCHNEURON_FALLBACK='maybe' is not allowed" in text
    assert "Traceback" not in text


def test_targets(command: Command) -> None:
    values = command.json("targets")
    assert values["trn2"]["hbm_bytes"] == 96 << 30
    assert "int64" in values["trn3"]["dtypes"]
    assert "Trainium3" in command.run("targets")


def test_cache(command: Command, tmp_path: Path) -> None:
    assert command.json("cache", "info")["programs"] == 0
    cache = DiskCache(str(tmp_path / "cache"), 1 << 20)
    cache.put("0" * 64, Neff(b"", b"x" * 1000))
    info = command.json("cache", "info")
    assert (info["programs"], info["directory"]) == (1, str(tmp_path / "cache"))
    assert "4.0 GiB" in command.run("cache", "info")
    assert command.json("cache", "clear")["removed"] == 1
    assert command.json("cache", "info")["bytes"] == 0


def test_doctor_of_a_sound_installation(command: Command) -> None:
    report = command.json("doctor")
    checks = {check["name"]: check for check in report["checks"]}
    assert report["ok"]
    assert list(checks) == [
        "python",
        "torch",
        "core",
        "settings",
        "plugin",
        "devices",
        "compiler",
        "cache",
        "disk",
    ]
    assert "PJRT" in checks["devices"]["finding"]


def test_doctor_says_what_to_do(command: Command, tmp_path: Path) -> None:
    (tmp_path / "plugin.so").write_text("no library")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    env = {
        "TORCHNEURON_PLUGIN": str(tmp_path / "plugin.so"),
        "TORCHNEURON_FALBACK": "error",
    }
    report = command.json("doctor", code=1, **env)
    checks = {check["name"]: check for check in report["checks"]}
    assert not report["ok"]
    assert checks["devices"]["status"] == "problem"
    assert "TORCHNEURON_PLUGIN" in checks["devices"]["advice"]
    assert checks["settings"]["status"] == "warning"
    assert "Did you mean TORCHNEURON_FALLBACK?" in checks["settings"]["advice"]
    assert checks["cache"]["status"] == "warning"
    assert "chmod o-w" in checks["cache"]["advice"]


def test_doctor_of_bad_settings_still_reports_all(command: Command) -> None:
    report = command.json("doctor", code=1, TORCHNEURON_CACHE_SIZE="lots")
    checks = {check["name"]: check for check in report["checks"]}
    assert "TORCHNEURON_CACHE_SIZE" in checks["settings"]["finding"]
    assert checks["torch"]["status"] == "ok"
    assert len(checks) == 9
