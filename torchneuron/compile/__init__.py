"""``torch.compile(model, backend="neuron")``: what becomes of the graphs that TorchDynamo captures."""
