"""The line of a crontab that starts a head after a reboot, and the script that it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clusterctl.startup.boot_entry import script_text, with_line, without_line

OTHERS = (
    "MAILTO=me\n# mine\n\n@reboot /opt/other # clusterctl is not this one\n0 5 * * 1 tar \xb5 \udcff %x\n"
)


@pytest.mark.parametrize("before", ["", "\n", OTHERS, f"{OTHERS}\n\n", "@daily x # clusterctl c-10\n"])
def test_the_lines_of_others_stay_as_they_are(before: str) -> None:
    after = with_line(before, "c-1", "/home/op/.node/after_boot")
    assert after == f"{before}@reboot /bin/sh /home/op/.node/after_boot # clusterctl c-1\n"
    assert without_line(after, "c-1") == before


def test_a_second_entry_replaces_the_first() -> None:
    first = with_line(OTHERS, "c-1", "/old")
    assert with_line(first, "c-1", "/new") == with_line(OTHERS, "c-1", "/new")
    both = with_line(first, "c-2", "/old")
    assert without_line(both, "c-1") == with_line(OTHERS, "c-2", "/old")


def test_a_last_line_without_an_end_is_ended() -> None:
    assert with_line("@daily x", "c", "/y") == "@daily x\n@reboot /bin/sh /y # clusterctl c\n"


def test_a_path_is_quoted_for_cron_and_for_the_shell() -> None:
    line = with_line("", "c", "/a b/50%")
    assert line == "@reboot /bin/sh '/a b/50\\%' # clusterctl c\n"


def test_the_script_runs_the_command_in_the_environment_of_the_start(tmp_path: Path) -> None:
    names = "{'BASH_FUNC_f%%', 'PWD', 'SSH_TTY'}"
    show = f"import os; print(os.getcwd(), os.environ['WORDS'], sorted(os.environ.keys() & {names}))"
    environment = {
        "WORDS": "it's $HOME\n50%",
        "BASH_FUNC_f%%": "() { :; }",
        "SSH_TTY": "/dev/pts/1",
        "TERM": "x",
    }
    script = script_text([sys.executable, "-c", show], environment, f"{tmp_path}/a log")
    ran = subprocess.run(["/bin/sh"], input=script, env={}, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")
    assert (tmp_path / "a log").read_text() == "/ it's $HOME\n50% ['PWD']\n"  # the shell's own
