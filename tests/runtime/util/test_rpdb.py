"""A debugger inside a task, and what there is not."""

from __future__ import annotations

import importlib
import re
import socket
from typing import Any

import pytest

import runtime as ray
from runtime.util import rpdb
from tests.polling import eventually


@pytest.mark.usefixtures("session")
def test_a_debugger_over_a_socket(capsys: Any) -> None:
    @ray.remote
    def work() -> int:
        value = 41
        rpdb.set_trace()
        return value + 1

    ref = work.remote()
    printed = ""

    def address() -> Any:
        nonlocal printed
        printed += capsys.readouterr().out
        return re.search(r"pdb waits at ([\d.]+):(\d+)", printed)

    assert eventually(address)
    found = address()
    with socket.create_connection((found[1], int(found[2])), timeout=60) as connection:
        stream = connection.makefile("rw")
        stream.write("p value\nvalue = 99\ncontinue\n")
        stream.flush()
        said = stream.read()
    assert "41" in said
    assert ray.get(ref, timeout=60) in (42, 100)  # whether pdb can set locals depends on Python


def test_nobody_connects() -> None:
    debugger = rpdb.RemotePdb(wait_s=0.01)
    assert debugger.wait() is False
    with pytest.raises(ValueError, match="being handled"):
        rpdb.post_mortem()


@pytest.mark.parametrize("name", ["dask", "spark", "iter", "actor_group"])
def test_what_there_is_not_says_so(name: str) -> None:
    with pytest.raises(ImportError, match=rf"runtime\.util\.{name}"):
        importlib.import_module(f"runtime.util.{name}")
