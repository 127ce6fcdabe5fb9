"""Programs of torch.export as files: they run without the model, and say what they do not take."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from torchneuron.compile.exported import ExportError
from torchneuron.compile.load import ExportedModel, read
from torchneuron.lowering.errors import LoweringError
from torchneuron.program import Neff, NeffError
from torchneuron.program.dump import stablehlo_text

DEVICE = "neuron"


class Model(torch.nn.Module):
    """Parameters, a counted buffer, a constant, keyword arguments, a changed input, views."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.constant = torch.arange(3.0)

    def forward(self, x: torch.Tensor, power: int = 2, *, more: dict[str, Any]) -> Any:
        self.calls.add_(1)
        more["seen"].add_(x.shape[0])
        y = self.norm(self.linear(x)) ** power + self.constant
        return {"y": y, "flat": x.view(-1), "rest": (y.t(), None, "done", x.shape[0])}


def arguments(rows: int = 5) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return torch.randn(rows, 4), {"seen": torch.zeros(2)}


def to(tree: Any, device: str) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), tree)


class Exported:
    """The model as it was when it was exported, and the file."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(0)
        self.model = Model()
        self.path = folder / "model.neff"
        self.stablehlo = folder / "model.mlirbc"
        x, more = arguments()
        self.neff = torch.neuron.export(
            self.model,
            (x,),
            self.path,
            kwargs={"more": more},
            dynamic_shapes={"x": {0: Dim("rows", min=2, max=64)}, "more": {"seen": None}},
            stablehlo=self.stablehlo,
        )


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("export"))


def call(program: Callable[..., Any], x: torch.Tensor, more: dict[str, torch.Tensor]) -> Any:
    return program(x, more=more)


def check_equal(program: Callable[..., Any], model: torch.nn.Module, x: torch.Tensor) -> None:
    more, device_more = {"seen": torch.ones(2)}, {"seen": torch.ones(2, device=DEVICE)}
    with torch.no_grad():
        expected = call(model, x, more)
    given = call(program, x.to(DEVICE), device_more)
    leaves, spec = pytree.tree_flatten(to(given, "cpu"))
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert spec == expected_spec
    for leaf, wanted in zip(leaves, expected_leaves, strict=True):
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(leaf, wanted)
        else:
            assert leaf == wanted
    torch.testing.assert_close(device_more["seen"].cpu(), more["seen"])


def test_it_gives_what_the_model_gives_for_all_sizes(exported: Exported) -> None:
    program = torch.neuron.load_exported(exported.path)
    for rows in (5, 7, 5):
        check_equal(program, exported.model, torch.randn(rows, 4))
    state = program.state_dict()
    for name, tensor in exported.model.state_dict().items():
        torch.testing.assert_close(state[name].cpu(), tensor)
    assert state["calls"].item() == 3


def test_aliases_stay_aliases(exported: Exported) -> None:
    program = torch.neuron.load_exported(exported.path)
    x, more = to(arguments(), DEVICE)
    result = call(program, x, more)
    result["flat"].zero_()
    assert not x.cpu().any()
    result["rest"][0].fill_(1)
    assert torch.equal(result["y"].cpu(), torch.ones(5, 3))


def test_other_layouts(exported: Exported) -> None:
    program = torch.neuron.load_exported(exported.path)
    exported.model.load_state_dict(to(program.state_dict(), "cpu"), strict=False)
    wide = torch.randn(6, 8)
    for x, device_x in [
        (wide.t()[:, :4], wide.to(DEVICE).t()[:, :4]),
        (wide.view(12, 4)[1:6], wide.to(DEVICE).view(12, 4)[1:6]),
    ]:
        with torch.no_grad():
            expected = exported.model(x.contiguous(), more={"seen": torch.zeros(2)})
        result = program(device_x, more={"seen": torch.zeros(2, device=DEVICE)})
        torch.testing.assert_close(result["y"].cpu(), expected["y"])


def test_a_changed_input_of_another_layout_is_written_back(exported: Exported) -> None:
    program = torch.neuron.load_exported(exported.path)
    seen = torch.zeros(2, 2, device=DEVICE)
    program(torch.randn(5, 4, device=DEVICE), more={"seen": seen[:, 1]})
    assert seen.cpu().tolist() == [[0, 5], [0, 5]]


SCRIPT = """
import json, sys, torch
model = torch.neuron.load_exported(sys.argv[1])
x = (torch.arange(20.0).reshape(5, 4) / 20).to("neuron")
result = model(x, more={"seen": torch.zeros(2).to("neuron")})
metrics = torch.neuron.metrics()
print(json.dumps({
    "y": result["y"].cpu().tolist(),
    "rest": result["rest"][1:],
    "compiled": metrics["programs_compiled"],
    "lowering": metrics["lowering_seconds"],
    "mlir": any(name.startswith("torch_mlir") for name in sys.modules),
    "dynamo": "torch._dynamo" in sys.modules,
}))
"""


def run(run_python: Any, path: Path, **variables: str) -> dict[str, Any]:
    script = f"import sys; sys.argv[1:] = [{str(path)!r}]\n{SCRIPT}"
    result: dict[str, Any] = json.loads(
        run_python(script, timeout=280, **variables).stdout.splitlines()[-1]
    )
    return result


@pytest.fixture
def expected(exported: Exported) -> torch.Tensor:
    """What ``SCRIPT`` should print for y."""
    program = torch.neuron.load_exported(exported.path)
    x = torch.arange(20.0, device=DEVICE).reshape(5, 4) / 20
    y: torch.Tensor = program(x, more={"seen": torch.zeros(2, device=DEVICE)})["y"].cpu()
    return y


def test_a_process_without_the_model_compiles_nothing(
    run_python: Any, exported: Exported, expected: torch.Tensor, tmp_path: Path
) -> None:
    told = run(run_python, exported.path, TORCHNEURON_CACHE_DIR=str(tmp_path))
    torch.testing.assert_close(torch.tensor(told["y"]), expected)
    assert told["rest"] == [None, "done", 5]
    assert (told["compiled"], told["lowering"]) == (0, 0)
    assert (told["mlir"], told["dynamo"]) == (False, False)


def test_another_plugin_compiles_the_stablehlo(
    run_python: Any, exported: Exported, expected: torch.Tensor, tmp_path: Path
) -> None:
    told = run(
        run_python,
        exported.path,
        TORCHNEURON_CACHE_DIR=str(tmp_path),
        TORCHNEURON_PLUGIN="lammps_jax_pjrt_cpu",
    )
    torch.testing.assert_close(torch.tensor(told["y"]), expected)
    assert (told["compiled"], told["mlir"]) == (1, False)


def test_an_executable_that_does_not_load_is_compiled_again(
    exported: Exported, tmp_path: Path
) -> None:
    for executable in (b"", b"not what the plugin wrote"):
        neff = exported.neff
        broken = Neff(
            neff.stablehlo,
            executable,
            neff.name,
            neff.interface,
            neff.metadata,
            neff.cost,
            neff.members,
        )
        path = tmp_path / "broken.neff"
        path.write_bytes(broken.to_bytes())
        program = torch.neuron.load_exported(path)
        result = call(program, *to(arguments(), DEVICE))
        assert result["y"].shape == (5, 3)


def test_the_stablehlo_artifact(exported: Exported) -> None:
    assert exported.stablehlo.read_bytes() == exported.neff.stablehlo
    text = stablehlo_text(exported.stablehlo.read_bytes())
    operands = read(exported.path).interface["operands"]
    (main,) = [line for line in text.splitlines() if "@main" in line]
    assert main.split("->")[0].count("tensor<") == len(operands)
    sizes = {tuple(item["arguments"]): item["numel"] for item in operands}
    assert sizes[("linear.weight",)] == 12
    assert sizes[("x",)] == 20


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((torch.zeros(65, 4),), {}, "input x: .* is 65; it must be from 2 to 64"),
        ((torch.zeros(5, 3),), {}, "input x: dimension 1 is 3, the program takes 4"),
        ((torch.zeros(5, 4, 1),), {}, "input x: the program takes 2 dimensions, not 3"),
        (
            (torch.zeros(5, 4).double(),),
            {},
            "input x: the program takes float32, not torch.float64",
        ),
        ((3,), {}, "input x: a tensor is wanted, not a int"),
        (
            (torch.zeros(5, 4), 3),
            {},
            r"the program takes \(\('x',\), {'more': {'seen': 'more_seen'}}\)",
        ),
        (
            (torch.zeros(5, 4),),
            {"more": None},
            r"the program takes \(\('x',\), {'more': {'seen': 'more_seen'}}\)",
        ),
        (
            (torch.zeros(5, 4),),
            {"more": {"seen": torch.zeros(3)}},
            "input .*seen: dimension 0 is 3",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    exported: Exported, args: Any, kwargs: Any, text: str
) -> None:
    program = torch.neuron.load_exported(exported.path)
    given = {"more": {"seen": torch.zeros(2)}} | kwargs
    with pytest.raises(ExportError, match=text):
        program(*to(args, DEVICE), **to(given, DEVICE))


def test_arguments_on_another_device_are_refused(exported: Exported) -> None:
    program = torch.neuron.load_exported(exported.path)
    with pytest.raises(ExportError, match="input x is on cpu, the program on neuron:0"):
        call(program, *arguments())
    with pytest.raises(ExportError, match="not on cpu"):
        torch.neuron.load_exported(exported.path, "cpu")


def test_another_device(exported: Exported) -> None:
    program = torch.neuron.load_exported(exported.path, "neuron:1")
    result = call(program, *to(arguments(), "neuron:1"))
    assert result["y"].device == torch.device("neuron:1")
    assert program.state_dict()["calls"].item() == 1


def test_files_that_hold_no_program(exported: Exported, tmp_path: Path) -> None:
    whole = exported.path.read_bytes()
    torn, other, cached = (tmp_path / name for name in ("torn", "other", "cached"))
    torn.write_bytes(whole[: len(whole) // 2])
    other.write_bytes(b"PK\3\4" * 1000)
    cached.write_bytes(Neff(b"module", b"executable").to_bytes())
    with pytest.raises(NeffError, match=r"torn: NEFF: truncated"):
        torch.neuron.load_exported(torn)
    with pytest.raises(NeffError, match="other: NEFF: not written by"):
        torch.neuron.load_exported(other)
    with pytest.raises(ExportError, match="cached is a cached program, not an exported one"):
        torch.neuron.load_exported(cached)
    with pytest.raises(FileNotFoundError):
        torch.neuron.load_exported(tmp_path / "none")
    altered = bytearray(whole)
    altered[-20_000] ^= 1
    torn.write_bytes(altered)
    with pytest.raises(NeffError, match="checksum"):
        torch.neuron.load_exported(torn)


class Tied(torch.nn.Module):
    """Two names for one parameter; on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(6, 4)
        self.head = torch.nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.embed(tokens))
        return logits


def test_a_saved_program_traced_on_the_device_with_tied_weights(tmp_path: Path) -> None:
    model = Tied().to(DEVICE)
    tokens = torch.tensor([[1, 2, 3]], device=DEVICE)
    torch.export.save(torch.export.export(model, (tokens,)), tmp_path / "tied.pt2")
    program = torch.export.load(tmp_path / "tied.pt2")
    neff = torch.neuron.export(program, (tokens,), tmp_path / "tied.neff")
    assert sum(item["sizes"] == [6, 4] for item in neff.interface["state"].values()) == 1
    loaded: ExportedModel = torch.neuron.load_exported(tmp_path / "tied.neff")
    torch.testing.assert_close(loaded(tokens).cpu(), model(tokens).detach().cpu())


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    @torch.library.custom_op("tn_export::opaque", mutates_args=())
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @opaque.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    class Opaque(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return opaque(x)

    path = tmp_path / "opaque.neff"
    program = torch.export.export(Opaque(), (torch.ones(2),))
    with pytest.raises(LoweringError, match=r"tn_export\.opaque\.default.*test_export\.py"):
        torch.neuron.export(program, path=path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ExportError, match="the example arguments are"):
        torch.neuron.export(program, (torch.ones(2), torch.ones(2)), path)
    with pytest.raises(ExportError, match="has its dynamic shapes already"):
        torch.neuron.export(program, dynamic_shapes=({},))
