"""What the lowering raises when a program cannot be built."""


class LoweringError(NotImplementedError):
    """An op, or this use of it, has no road to StableHLO.

    ``op`` is the op's name (``aten.add.Tensor``), ``reason`` says why in words, ``line`` is the
    user's ``file:line`` that issued it, empty where the graph does not tell.
    """

    def __init__(
        self,
        op: object,
        reason: str = "no emitter, decomposition or Torch-MLIR lowering",
        line: str = "",
    ):
        """``op`` may be an OpOverload, a dtype or a name."""
        self.op = str(op)
        self.reason = reason
        self.line = line
        super().__init__(self._text())

    def locate(self, line: str) -> None:
        """Say which line issued the op, unless that is known."""
        self.line = self.line or line
        self.args = (self._text(),)

    def _text(self) -> str:
        return f"{self.op}: {self.reason}" + (f" (at {self.line})" if self.line else "")

    def __reduce__(self) -> tuple[type["LoweringError"], tuple[str, str, str]]:
        """Pickles by its parts."""
        return (LoweringError, (self.op, self.reason, self.line))
