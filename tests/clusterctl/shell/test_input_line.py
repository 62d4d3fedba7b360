"""That every shell makes the script of the line, whatever is in it, and leaves the rest of its input alone; and takes
the next line for a script only if the one before has ended well."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clusterctl.shell import input_line
from tests.shells import SHELLS


def begun(shell: Sequence[str], input: bytes) -> bytes:
    """What comes of an input, where `shell` is the machine's /bin/sh."""
    command = input_line.RUN.replace("/bin/sh", shlex.join(shell))
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    ran = subprocess.run(
        ["/bin/sh", "-c", command], input=input, stdout=subprocess.PIPE, check=False, env=env
    )
    return ran.stdout


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=200).map(lambda data: data.replace(b"\0", b"")))
@example(bytes(range(1, 256)) * 2)
@example(b"\\c\\0101\\x41\\\\n\\\n'\"$x`x`%s-n\r")
@example(b"\x01\xc2\x01\x7f")
@example(b"\n long \\ lines \xff\n" * 6000)
def test_any_text_is_a_script_and_the_rest_of_the_input_is_its_own(shell: Sequence[str], text: bytes) -> None:
    quoted = b"'" + text.replace(b"'", b"'\"'\"'") + b"'"
    script = b"printf %s " + quoted + b"\nprintf '<%s>' $?\ncat"
    assert begun(shell, input_line.encode(script) + b"rest\n") == text + b"<0>rest\n"


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
def test_a_line_that_is_cut_off_does_nothing(shell: Sequence[str]) -> None:
    assert begun(shell, input_line.encode(b"echo one\necho two")[:-4]) == b""


@pytest.mark.parametrize("shell", SHELLS, ids=shlex.join)
@pytest.mark.parametrize(
    "end", ["exit", "false", "return 1", "kill -KILL $$", "if (", "echo 'open", "set -e; false"]
)
def test_after_a_script_that_ends_the_shell_or_ends_badly_nothing_is_a_script(
    shell: Sequence[str], end: str
) -> None:
    lines = [b"echo one", b"(exit 3); echo $?", b"echo three\n" + end.encode(), b"echo never"]
    assert begun(shell, b"".join(map(input_line.encode, lines))) == b"one\n3\nthree\n"
