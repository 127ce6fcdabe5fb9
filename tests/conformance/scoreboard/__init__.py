"""The scoreboard: all of PyTorch's databases of operators, modules and optimizers on the device."""
