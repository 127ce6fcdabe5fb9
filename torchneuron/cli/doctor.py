"""``torchneuron doctor``: is everything here that a program needs, and if not, what to do."""

from __future__ import annotations

import difflib
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, NamedTuple

import click

from torchneuron.cli.output import as_json, print_json, size
from torchneuron.program.cache import DiskCache
from torchneuron.program.plugin import find_plugin, installed_plugins, neuron_devices
from torchneuron.settings import Settings, settings

Status = Literal["ok", "warning", "problem"]

_PROBE_SECONDS = 120
_LOW_DISK = 1 << 30


class Check(NamedTuple):
    """One finding, and what to do about it unless it is ok."""

    name: str
    status: Status
    finding: str
    advice: str = ""


@click.command()
@as_json
def doctor(json_output: bool) -> None:
    """Check this installation; exit code 1 if it cannot work."""
    checks = list(run_checks())
    broken = any(check.status == "problem" for check in checks)
    if json_output:
        print_json({"ok": not broken, "checks": [check._asdict() for check in checks]})
    else:
        colors = {"ok": "green", "warning": "yellow", "problem": "red"}
        for check in checks:
            mark = click.style(f"{check.status:<8}", fg=colors[check.status])
            click.echo(f"{mark} {check.name:<9} {check.finding}")
            if check.advice:
                click.echo(f"{'':<19}{check.advice}")
    sys.exit(1 if broken else 0)


def run_checks() -> Iterator[Check]:
    """All checks, one after the other; none raises."""
    for check in _CHECKS:
        name = check.__name__.removeprefix("_check_")
        try:
            yield check(name)
        except Exception as error:
            # A doctor who faints is no help: whatever went wrong is the finding.
            yield Check(name, "problem", f"{type(error).__name__}: {error}")


def _check_python(name: str) -> Check:
    return Check(name, "ok", f"{platform.python_version()} at {sys.executable}")


def _check_torch(name: str) -> Check:
    try:
        import torch
    except (ImportError, OSError) as error:
        return Check(name, "problem", f"cannot be imported: {error}", "Install torch again.")
    return Check(name, "ok", torch.__version__)


def _check_core(name: str) -> Check:
    try:
        core = import_module("torchneuron._C")
    except (ImportError, OSError) as error:
        advice = "Install torchneuron again: it was built for another PyTorch or Python."
        return Check(name, "problem", f"torchneuron._C cannot be loaded: {error}", advice)
    return Check(name, "ok", str(core.__file__))


def _check_settings(name: str) -> Check:
    try:
        rows = settings.describe()
    except ValueError as error:
        return Check(name, "problem", str(error), "Correct the variable or unset it.")
    unknown = settings.unknown_variables()
    if unknown:
        known = [row.variable for row in rows]
        near = difflib.get_close_matches(unknown[0], known, n=1)
        advice = f"Did you mean {near[0]}? " if near else ""
        advice += "`torchneuron settings` lists all."
        return Check(name, "warning", f"there is no setting {', '.join(unknown)}", advice)
    changed = [row.variable for row in rows if row.source != "default"]
    return Check(name, "ok", f"set: {', '.join(changed)}" if changed else "all at their defaults")


def _check_plugin(name: str) -> Check:
    plugin = find_plugin()
    others = [other.path for other in installed_plugins() if other.path != plugin.path]
    also = f"; also installed: {', '.join(others)}" if others else ""
    return Check(name, "ok", f"{plugin.path} ({plugin.origin}){also}")


def _check_devices(name: str) -> Check:
    result, failure = _probe(find_plugin().path)
    if failure:
        advice = f"Try another plugin: set {Settings.plugin.variable}."
        return Check(name, "problem", f"the plugin cannot run a program: {failure}", advice)
    major, minor = result["api_version"]
    finding = f"{result['devices']} {result['device_kind']} (PJRT {major}.{minor})"
    if not result["adds"]:
        return Check(name, "problem", f"{finding}: 1 + 1 is wrong", "Do not use this plugin.")
    if result["missing_entries"]:
        finding += f"; the plugin lacks {', '.join(result['missing_entries'])}"
    nodes = neuron_devices()
    if nodes and result["platform"] == "cpu":
        advice = "Install libneuronxla from AWS's package index to use them."
        return Check(name, "warning", f"{finding}, but {len(nodes)} Neuron chips unused", advice)
    if not nodes:
        finding += "; no Neuron chips here, programs run on the host CPU"
    return Check(name, "ok", finding)


def _check_compiler(name: str) -> Check:
    lowering = _installed("torch-mlir")
    if lowering is None:
        return Check(name, "problem", "torch-mlir is not installed", "Install torch-mlir.")
    finding = f"torch-mlir {lowering}"
    neuron = _installed("neuronx-cc")
    if neuron is None and neuron_devices():
        advice = "Install neuronx-cc from AWS's package index."
        return Check(name, "warning", f"{finding}, but no neuronx-cc for the chips here", advice)
    return Check(name, "ok", f"{finding}, neuronx-cc {neuron}" if neuron else finding)


def _check_cache(name: str) -> Check:
    if not settings.cache:
        return Check(name, "warning", "switched off", "Programs compile anew in every process.")
    directory = settings.cache_dir
    if directory is None:
        advice = f"Set {Settings.cache_dir.variable} to keep compiled programs."
        return Check(name, "warning", "no home directory", advice)
    info = DiskCache(directory, settings.cache_size).info()
    finding = f"{directory}: {info.entries:,} programs, {size(info.bytes)}"
    existing = _existing(directory)
    if not os.access(existing, os.W_OK | os.X_OK):
        advice = f"Make it writable or set {Settings.cache_dir.variable} to another directory."
        return Check(name, "warning", f"{finding}, cannot be written", advice)
    # Who can write an executable there can run code as whoever reads it.
    if existing == directory and os.stat(directory).st_mode & stat.S_IWOTH:
        advice = f"chmod o-w {directory}: programs are executable code."
        return Check(name, "warning", f"{finding}, can be written by everyone", advice)
    return Check(name, "ok", finding)


def _check_disk(name: str) -> Check:
    directory = settings.cache_dir
    if directory is None or not settings.cache:
        return Check(name, "ok", "not needed without a cache")
    free = shutil.disk_usage(_existing(directory)).free
    finding = f"{size(free)} free for {directory}"
    if free < _LOW_DISK:
        advice = "Free some, or run `torchneuron cache clear`."
        return Check(name, "warning", finding, advice)
    return Check(name, "ok", finding)


_CHECKS: tuple[Callable[[str], Check], ...] = (
    _check_python,
    _check_torch,
    _check_core,
    _check_settings,
    _check_plugin,
    _check_devices,
    _check_compiler,
    _check_cache,
    _check_disk,
)


def _probe(path: str) -> tuple[dict[str, Any], str]:
    """What probe.py says about the plugin, or why it says nothing."""
    command = [sys.executable, "-m", "torchneuron.cli.probe", path]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return {}, f"no answer within {_PROBE_SECONDS} s"
    if done.returncode == 0:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer, ""
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return {}, last if done.returncode > 0 else f"killed by signal {-done.returncode}: {last}"


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _existing(path: str) -> str:
    """The nearest directory above ``path``, or itself, that exists."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path
