"""Results whose size depends on data: they are what they look like, storage included."""

import io

import torch

X = torch.arange(24.0).reshape(4, 6)


def selected() -> torch.Tensor:
    """16 of 24 elements."""
    return X.to("neuron")[(X > 7).to("neuron")]


def test_the_storage_ends_with_the_tensor() -> None:
    assert selected().untyped_storage().nbytes() == 16 * 4
    nonzero = X.to("neuron").nonzero()
    assert nonzero.untyped_storage().nbytes() == X.nonzero().untyped_storage().nbytes()
    assert X.to("neuron")[X.to("neuron") > 99].untyped_storage().nbytes() == 0


def test_saved_it_takes_what_it_holds() -> None:
    file = io.BytesIO()
    torch.save(selected(), file)
    like = io.BytesIO()
    torch.save(torch.zeros(16, device="neuron"), like)
    assert abs(len(file.getvalue()) - len(like.getvalue())) < 8
    file.seek(0)
    torch.testing.assert_close(torch.load(file).cpu(), X[X > 7])


def test_copies_and_writes() -> None:
    x, expected = selected(), X[X > 7]
    torch.testing.assert_close(x.clone().cpu(), expected)
    torch.testing.assert_close(torch.empty_like(x).copy_(x).cpu(), expected)
    torch.testing.assert_close(x.copy_(torch.ones(16)).cpu(), torch.ones(16))
    torch.testing.assert_close(
        x.copy_(torch.ones(16, device="neuron")).mul_(3).cpu(), 3 * torch.ones(16)
    )
    view = selected().view(4, 4)
    view[1] = 5
    assert view.sum().item() == expected.sum() - expected[4:8].sum() + 20


def test_resizing() -> None:
    x, expected = selected(), X[X > 7]
    torch.testing.assert_close(x.resize_(30)[:16].cpu(), expected)
    y = selected()
    y.untyped_storage().resize_(8)
    torch.testing.assert_close(y.resize_(2).cpu(), expected[:2])
