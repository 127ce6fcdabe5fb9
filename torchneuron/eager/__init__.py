"""The miss path of eager dispatch: from a call without a program to its program."""
