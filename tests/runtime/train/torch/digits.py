"""Digits of scikit-learn's wheel, and a loop over them that any number of ranks computes alike."""

from __future__ import annotations

from typing import Any

EPOCHS, BATCH = 6, 64


def data() -> Any:
    """1,437 images for training with their digits, and 360 for the test."""
    import torch
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(1))
    x = torch.tensor(digits.data, dtype=torch.float32)[order] / 16
    y = torch.tensor(digits.target)[order]
    return x[:1437], y[:1437], x[1437:], y[1437:]


def model() -> Any:
    """A perceptron with a hidden layer, the same each time."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


def loop(model: Any, rank: int, world: int) -> dict[str, float]:
    """Trains it. The ranks share each batch, so the gradients do not depend on their number, up to rounding.

    Returns:
        The accuracy on the test's images, and the sum of the weights' sizes.
    """
    import torch

    x, y, test_x, test_y = data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(epoch))
        for start in range(0, len(y) - BATCH + 1, BATCH):
            mine = order[start : start + BATCH][rank::world]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[mine]), y[mine]).backward()
            optimizer.step()
    with torch.no_grad():
        accuracy = (model(test_x).argmax(1) == test_y).float().mean().item()
        whole = [
            getattr(each, "full_tensor", lambda each=each: each)() for each in model.state_dict().values()
        ]
    weights = sum(each.abs().sum().item() for each in whole)
    return {"accuracy": accuracy, "weights": weights}
