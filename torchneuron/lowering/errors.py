"""What the lowering raises when a program cannot be built."""


class LoweringError(NotImplementedError):
    """An op, or this use of it, has no road to StableHLO.

    ``op`` is the op's name (``aten.add.Tensor``), ``reason`` says why in words.
    """

    def __init__(
        self, op: object, reason: str = "no emitter, decomposition or Torch-MLIR lowering"
    ):
        """``op`` may be an OpOverload, a dtype or a name."""
        self.op = str(op)
        self.reason = reason
        super().__init__(f"{self.op}: {reason}")

    def __reduce__(self) -> tuple[type["LoweringError"], tuple[str, str]]:
        """Pickles by its parts."""
        return (LoweringError, (self.op, self.reason))
