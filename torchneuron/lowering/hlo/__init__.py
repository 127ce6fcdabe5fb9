"""The StableHLO DSL that ``Builder`` is made of: text emission, shape ops, maths, structured ops,
control flow.

Ops are written as text in MLIR's generic form and parsed once per program: as fast as building them
through MLIR's Python bindings, which have no StableHLO op classes here, and it leaves the emitters
free of MLIR.
"""
