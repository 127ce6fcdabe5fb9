"""Each test starts with nothing compiled: TorchDynamo keeps what it compiled by code, and tests share code."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
