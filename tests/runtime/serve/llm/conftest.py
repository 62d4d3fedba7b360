"""A small model, in a folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtime.tiny_llm import save_tiny_llm


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    """Of torch: a small model gains nothing by more, which wait for each other if the machine is busy."""
    try:
        import torch
    except ImportError:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of two layers with its tokenizer; it has 8192 positions."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    path = str(tmp_path_factory.mktemp("llm"))
    save_tiny_llm(path, positions=8192)
    return path
