"""What of a machine's answer keeps it from becoming a node."""

from __future__ import annotations

import sys
import sysconfig

import pytest

from autoscaler.provider import (
    MachineTags,
    ShellAuthFailed,
    ShellTimedOut,
)
from clusterctl.artefacts.target import Target
from clusterctl.providers.ssh.checks import Examined, problems_of
from clusterctl.providers.ssh.claim import Claim, Facts, id_on
from clusterctl.shell.connections import HostKeyChanged

LOOPBACK = Facts("h", "127.0.0.1", "/home/op", "1000", "/bin", 4.0, 1e9, None)
FACTS = Facts("h", "10.0.0.1", "/home/op", "1000", "/bin", 4.0, 1e9, None)
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
ABI = str(sysconfig.get_config_var("SOABI"))
LIBC = "glibc-2.36"


@pytest.mark.parametrize(
    ("answer", "words", "fatal"),
    [
        (
            Examined(FACTS, "3.9", "cpython-39-x86_64-linux-gnu", LIBC, 2**40),
            "has Python 3.9, on which no",
            True,
        ),
        (Examined(FACTS, VERSION, "cpython-311-riscv64-linux-gnu", LIBC, 2**40), "its CPU is riscv64", True),
        (Examined(FACTS, VERSION, ABI, "glibc-2.12", 2**40), "glibc 2.17 or newer", True),
        (Examined(FACTS, VERSION, "pypy311-pp73-x86_64-linux-gnu", LIBC, 2**40), "PyPy", True),
        (Examined(FACTS, VERSION, ABI, LIBC, 2**20), "1 MiB free", True),
        (Examined(FACTS, VERSION, ABI, LIBC, 2**40, -90.0), "-90 s off", False),
        (ShellAuthFailed("who?"), "who?", True),
        (HostKeyChanged("changed"), "changed", True),
        (ShellTimedOut("nothing"), "nothing", False),
    ],
)
def test_what_would_fail_is_found_before(answer: Examined | Exception, words: str, fatal: bool) -> None:
    (problem,) = problems_of({"w": answer}, "h", "python3", nobody)
    assert words in problem.what
    assert problem.fatal is fatal


@pytest.mark.parametrize(
    ("version", "machine", "words"),
    [
        ((3, 13), "x86_64", "w has Python 3.13, the head has 3.12"),
        ((3, 12), "aarch64", "w has a CPU of kind aarch64, the head has x86_64"),
        ((3, 12), "x86_64", ""),
    ],
)
def test_workers_must_be_of_the_heads_kind_and_the_head_of_any(
    version: tuple[int, int], machine: str, words: str
) -> None:
    def machine_of(target: Target) -> Examined:
        return Examined(FACTS, target.version, target.abi, LIBC, 2**40)

    answers = {"h": machine_of(Target((3, 12), "x86_64")), "w": machine_of(Target(version, machine))}
    found = problems_of(answers, "h", "python3", nobody)
    assert [problem.what for problem in found] == [words] * bool(words)
    assert problems_of(answers, "h", "python3", nobody, any_python=True) == []


def nobody(claim: Claim) -> bool:
    return False


def test_the_head_must_answer_and_be_free() -> None:
    (problem,) = problems_of({"h": ShellTimedOut("nothing")}, "h", "python3", nobody)
    assert problem.fatal
    fine = Examined(FACTS, VERSION, ABI, LIBC, 2**40)
    (problem,) = problems_of(
        {"h": Examined(LOOPBACK, VERSION, ABI, LIBC, 2**40), "w": fine}, "h", "python3", nobody
    )
    assert "reached as itself" in problem.what
    claim = Claim(
        id=id_on("h", "x"),
        host="h",
        entry="h",
        hostname="h",
        node_type="",
        tags={MachineTags.CLUSTER_NAME: "theirs"},
        launched_s=0.0,
        address="",
        home="",
        path="",
        session_dir="",
    )
    facts = Facts("h", "10.0.0.1", "", "", "", 1.0, 1.0, claim)
    taken = {"h": Examined(facts, VERSION, ABI, LIBC, 2**40)}
    (problem,) = problems_of(taken, "h", "python3", nobody)
    assert "belongs to cluster 'theirs'" in problem.what
    assert problem.fatal
    assert problems_of(taken, "h", "python3", lambda claim: True) == []


def test_ports_of_the_head_must_be_free_unless_they_may_be_its_own() -> None:
    busy = Examined(FACTS, VERSION, ABI, LIBC, 2**40, taken=(6379,))
    (problem,) = problems_of({"h": busy}, "h", "python3", nobody)
    assert "port 6379 of h is in use" in problem.what
    assert problem.fatal
