"""``torchneuron export`` and ``torchneuron explain``, as a user calls them."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from torchneuron.cli import main


def run(*arguments: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small program of torch.export.save."""
    path = tmp_path_factory.mktemp("saved") / "model.pt2"
    rows = torch.export.Dim("rows", min=2)
    model = torch.nn.Linear(3, 2)
    program = torch.export.export(model, (torch.ones(4, 3),), dynamic_shapes=({0: rows},))
    torch.export.save(program, path)
    return path


def test_export_and_show(saved: Path, tmp_path: Path) -> None:
    output, stablehlo = tmp_path / "model.neff", tmp_path / "model.mlirbc"
    told = json.loads(run("export", saved, "-o", output, "--stablehlo", stablehlo, "--json").stdout)
    assert [item["name"] for item in told["inputs"]] == ["input"]
    assert told["bytes"]["stablehlo"] == stablehlo.stat().st_size
    assert {tuple(item["arguments"]) for item in told["operands"]} == {
        ("weight",),
        ("bias",),
        ("input",),
    }
    shown = run("export", "--show", output).output
    assert "1 inputs, 1 results, 2 weights of 8 elements" in shown
    assert "float32[" in shown
    assert "2 to any" in shown
    model = torch.neuron.load_exported(output)
    assert model(torch.ones(6, 3).to("neuron")).shape == (6, 2)


def test_mistakes_are_one_line(saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pt2"
    other.write_bytes(b"no zip")
    assert (
        "other.pt2 is not a program of torch.export.save"
        in run("export", other, "-o", tmp_path / "out.neff", code=1).output
    )
    assert (
        "other.pt2: NEFF: 6 bytes are less than a header"
        in run("export", "--show", other, code=1).output
    )
    assert "give --output or --stablehlo" in run("export", saved, code=2).output
    assert "does not exist" in run("export", tmp_path / "none", "--show", code=2).output
    assert not (tmp_path / "out.neff").exists()


SCRIPT = """
import sys
import torch

@torch.compile(backend="neuron")
def double(x):
    return x + x

print("sum", double(torch.ones(int(sys.argv[1])).to("neuron")).cpu().sum().item())
sys.exit(int(sys.argv[2]))
"""


def test_explain_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    torch._dynamo.reset()
    output = run("explain", script, "3", "0").output
    assert output.startswith("sum 6.0")
    for part in ("1 graph,", "double", f"{script}:5", "aten.add.Tensor 1", "first use"):
        assert part in output
    torch._dynamo.reset()
    result = run("explain", "--json", script, "4", "5", code=5)
    told = json.loads(result.stdout)
    assert "sum 8.0" in result.stderr
    assert told["programs"][0]["outputs"] == 1


def test_explain_a_script_that_fails(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise ValueError('on purpose')")
    assert "No graph was compiled" in run("explain", script, code=1).output
