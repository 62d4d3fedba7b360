"""Remote drivers over TLS: both sides show a certificate of the CA that they trust."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.certificates import Authority
from tests.integration.remote_heads import RemoteHead, remote_head

PROGRAM = """
    import runtime as ray
    ray.init()

    @ray.remote
    def double(x):
        return 2 * x

    print(ray.get(double.remote(21)))
"""
OFF = dict.fromkeys(("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"), "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def head(folder: Path) -> Iterator[RemoteHead]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in Authority(folder / "own", "own").environment().items():
            patch.setenv(name, value)
        with remote_head() as head:
            yield head


def test_a_program_with_a_certificate_of_the_ca_works(head: RemoteHead) -> None:
    assert head.run(PROGRAM) == "42\n"


def test_a_program_without_tls_is_refused(head: RemoteHead) -> None:
    process = head.start(PROGRAM, RAY_USE_TLS="0", **OFF)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "ConnectionError: Failed to connect" in err.splitlines()[-1]


def test_another_ca_is_refused(head: RemoteHead, folder: Path) -> None:
    process = head.start(PROGRAM, **Authority(folder / "other", "other").environment())
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "ConnectionError: Failed to connect" in err.splitlines()[-1]
    assert not head.drivers()


def test_a_missing_file_is_named(head: RemoteHead) -> None:
    process = head.start(PROGRAM, RAY_TLS_SERVER_KEY="")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "RAY_USE_TLS is set, and RAY_TLS_SERVER_KEY must name PEM files" in err.splitlines()[-1]
