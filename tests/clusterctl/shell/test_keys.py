"""Which identity files can log in by themselves, so that `IdentitiesOnly` may shut an ssh-agent out."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from clusterctl.shell.keys import is_usable

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is missing")


def make_key(path: Path, passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True)
    return path


def test_a_private_key_is(tmp_path: Path) -> None:
    assert is_usable(str(make_key(tmp_path / "key")))


def test_keys_that_need_an_agent_are_not(tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", "secret")
    assert not is_usable(str(locked))
    assert not is_usable(f"{locked}.pub")
    assert not is_usable(str(tmp_path / "missing"))
    (tmp_path / "text").write_text("no key")
    assert not is_usable(str(tmp_path / "text"))
