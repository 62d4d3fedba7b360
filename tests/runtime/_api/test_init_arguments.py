"""Which clusters a program may join."""

from __future__ import annotations

import sys

import pytest

from runtime._api.init_arguments import check_python

OWN = "{}.{}".format(*sys.version_info)


@pytest.mark.parametrize("version", [OWN, ""])
def test_a_cluster_of_the_same_python_or_one_that_does_not_say_is_joined(version: str) -> None:
    check_python(version)


def test_a_cluster_of_another_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_IGNORE_VERSION_MISMATCH", raising=False)
    with pytest.raises(RuntimeError, match=rf"cluster runs Python 3\.2, and this program Python {OWN}"):
        check_python("3.2")


def test_the_check_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_IGNORE_VERSION_MISMATCH", "1")
    check_python("3.2")
