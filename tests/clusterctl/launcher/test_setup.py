"""The steps that make a node, and how their failures read."""

from __future__ import annotations

import io
import os
import pathlib
import socket
import tarfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import pytest

from autoscaler.provider import (
    CommandResult,
    CommandTimedOut,
    Machine,
    MachineState,
    NodeType,
    SetupError,
    ShellAuthFailed,
    ShellError,
    ShellLost,
    ShellRefused,
    ShellTimedOut,
)
from clusterctl.artefacts.packing import Archive
from clusterctl.launcher import readiness, setup
from clusterctl.launcher.node_look import Found
from clusterctl.launcher.runtimes import engine_nodes
from clusterctl.launcher.setup import NodeFacts
from clusterctl.launcher.shipping import Shipment
from clusterctl.launcher.steps import SetupLog
from clusterctl.shell import archive
from clusterctl.shell.local import LocalShell
from clusterctl.spec.load import load_text
from clusterctl.startup.order import JoinOrder
from clusterctl.sync.rules import rules
from clusterctl.sync.transfer import Mount

SPEC = load_text(
    "cluster_name: c\nprovider: {type: local}\nhead_node_type: head\n"
    "available_node_types: {head: {}, w: {max_workers: 1}}\n"
    "initialization_commands: [i]\nsetup_commands: [s]\nhead_setup_commands: [h]\n"
    "worker_setup_commands: [w]\n"
    "head_start_ray_commands: ['echo x; ray start --head']\nfile_mounts: {'~/data': /src}\n"
)
WORKER = NodeType(
    "w",
    resources={"CPU": 1.0},
    labels={"zone": "it's"},
    setup={"setup_commands": ["s"], "worker_setup_commands": ["w"]},
)


MACHINE = Machine("m", MachineState.RUNNING, "w", {}, "5.6.7.8", zone="eu-1", market="spot")


class ScriptedShell(LocalShell):
    """A local shell whose first answers are errors."""

    def __init__(self, home: str, errors: list[ShellError]) -> None:
        super().__init__(home, {"PATH": "/usr/bin:/bin", "HOME": home})
        self.errors = errors

    def run(
        self,
        command: str,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        on_output: Callable[[str], None] | None = None,
        stdin: Iterable[bytes] | None = None,
    ) -> CommandResult:
        if self.errors:
            raise self.errors.pop(0)
        return super().run(command, env=env, timeout_s=timeout_s, on_output=on_output, stdin=stdin)


def facts(tmp_path: pathlib.Path, **changes: object) -> NodeFacts:
    secret = tmp_path / "the-secret"
    secret.write_text("s")
    values: dict[str, object] = {
        "is_head": False,
        "start": "echo started",
        "secret_file": str(secret),
        "python": _python(),
        **changes,
    }
    return NodeFacts(**values)  # type: ignore[arg-type]


def _python() -> tuple[int, int]:
    shell = LocalShell("/", {"PATH": "/usr/bin:/bin"})
    text = shell.run(f"{setup.PYTHON} -c 'import sys; print(*sys.version_info[:2])'").output
    major, minor = text.split()
    return int(major), int(minor)


def run(tmp_path: pathlib.Path, node: NodeFacts, errors: list[ShellError] | None = None) -> tuple[str, str]:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    file = io.StringIO()
    output = setup.run(ScriptedShell(str(home), errors or []), node, SetupLog(file), deadline_s=0.0)
    return output, file.getvalue()


def test_the_heads_steps_in_order() -> None:
    steps = setup.steps(engine_nodes.head_facts(SPEC, "/secret", "/config", "10.0.0.1"), Found())
    assert steps[0].input == (archive.File("secret", "/secret"), archive.File("head.json", "/config"))
    assert [step.name for step in steps] == [
        "copy the private files",
        "initialization_commands[0]",
        "file_mounts",
        "setup_commands[0]",
        "head_setup_commands[0]",
        "start_commands[0]",
        "start",
    ]


@pytest.mark.parametrize("there", ["", "a-b", "a"])
def test_a_runtime_that_is_there_is_not_sent_again(tmp_path: pathlib.Path, there: str) -> None:
    shipped = Shipment((Archive("runtime", "a", "/r"), Archive("head", "b", "/h")), "3.12")
    node = facts(tmp_path, files=(("head.json", "/config"),))
    step = setup.steps(node, Found("/opt/my python/bin/python3", there), shipped)[0]
    private = (archive.File("secret", node.secret_file), archive.File("head.json", "/config"))
    if there == "a-b":
        assert (step.name, step.input) == ("copy the private files", private)
    else:
        parts = (archive.File("runtime/runtime.tar.gz", "/r"), archive.File("runtime/head.tar.gz", "/h"))
        assert (step.name, step.input) == ("install the runtime", (*private, *parts))
        assert "'/opt/my python/bin/python3'" in step.command
    running = setup.steps(setup.without_start(node), Found("/python", there), shipped)[0]
    assert (running.name == "install the runtime") is (there == ""), "what daemons run on stays"


SITE = "lib/python3.12/site-packages"


def plain_worker(tmp_path: pathlib.Path, **changes: object) -> NodeFacts:
    packed = tmp_path / "runtime.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo(f"{SITE}/some.py"))
    (tmp_path / "home").mkdir(exist_ok=True)
    shipped = Shipment((Archive("runtime", "abc", str(packed)),), "3.12")
    return facts(tmp_path, runtime=lambda target: shipped, **changes)


def test_a_plain_worker_is_installed_and_started(tmp_path: pathlib.Path) -> None:
    shell = ScriptedShell(str(tmp_path / "home"), [])
    assert setup.run(shell, plain_worker(tmp_path), SetupLog(io.StringIO())) == "started\n"
    folder = tmp_path / "home" / ".clusterctl-node"
    assert (folder / "secret").read_text() == "s"
    runtime = folder / "runtime"
    assert (runtime / "digest").read_text() == "abc\n"
    assert (runtime / SITE / "some.py").exists()
    python = (runtime / "bin/python").readlink()
    assert python.is_absolute()
    assert os.readlink(runtime / "bin/python3") == "python"
    assert (runtime / "pyvenv.cfg").read_text() == (
        f"home = {python.parent}\ninclude-system-site-packages = false\n"
    )


def test_what_is_wrong_with_a_plain_worker_is_told_before_anything_is_installed(
    tmp_path: pathlib.Path,
) -> None:
    node = plain_worker(tmp_path, head="127.0.0.1:9")
    with pytest.raises(SetupError, match=r"refused.*firewall") as failed:
        setup.run(ScriptedShell(str(tmp_path / "home"), []), node, SetupLog(io.StringIO()))
    assert failed.value.step == "reach the head"
    assert not (tmp_path / "home" / ".clusterctl-node").exists()


def test_private_files_stay_private(tmp_path: pathlib.Path) -> None:
    node = facts(tmp_path)
    pathlib.Path(node.secret_file).chmod(0o600)
    run(tmp_path, node)
    assert (tmp_path / "home" / ".clusterctl-node" / "secret").stat().st_mode & 0o777 == 0o600


def test_a_workers_start_command_carries_all_and_no_secret() -> None:
    node = engine_nodes.worker_facts(SPEC, MACHINE, WORKER, "i-1", "1.2.3.4:5", "/secret")
    assert node.head == "1.2.3.4:5"
    commands = [step for step in setup.steps(node, Found()) if "setup_commands" in step.name]
    assert [(step.name, step.command) for step in commands] == [
        ("setup_commands[0]", "s"),
        ("worker_setup_commands[0]", "w"),
    ]
    words = (
        LocalShell("/", {})
        .run(f"printf '%s\\n' {node.start.split('-m', 1)[1].partition(' &)')[0]}")
        .output.splitlines()
    )
    order = msgspec.json.decode(words[1], type=JoinOrder)
    assert (order.address, order.host, order.node_type, order.instance_id) == (
        "1.2.3.4:5",
        "5.6.7.8",
        "w",
        "i-1",
    )
    assert order.secret_file.startswith("~/")
    assert order.labels == {
        "ray.io/node-group": "w",
        "ray.io/availability-zone": "eu-1",
        "ray.io/market-type": "spot",
        "zone": "it's",
    }


def test_all_steps_run_and_the_last_output_is_returned(tmp_path: pathlib.Path) -> None:
    output, log = run(tmp_path, facts(tmp_path, commands=("echo one; echo two",)))
    assert output == "started\n"
    assert (tmp_path / "home" / ".clusterctl-node" / "secret").read_text() == "s"
    assert "step: setup_commands[0]" in log
    assert "two" in log


def test_commands_know_the_head_and_are_read_by_bash(tmp_path: pathlib.Path) -> None:
    head = engine_nodes.head_facts(SPEC, "/secret", "/config", "10.0.0.9")
    worker = engine_nodes.worker_facts(SPEC, MACHINE, WORKER, "i-1", "[fd00::1]:5", "/secret")
    assert (head.env["RAY_HEAD_IP"], worker.env["RAY_HEAD_IP"]) == ("10.0.0.9", "fd00::1")
    commands = ('echo "at $RAY_HEAD_IP, $CLUSTERCTL_HEAD_IP"', "[[ abc == a* ]] && echo 'it is bash' &> file")
    _, log = run(tmp_path, facts(tmp_path, commands=commands, env=head.env))
    assert "at 10.0.0.9, 10.0.0.9" in log
    assert (tmp_path / "home" / "file").read_text() == "it is bash\n"


@pytest.mark.parametrize("is_open", [True, False])
def test_a_worker_that_cannot_reach_the_head_is_told_before_anything_is_installed(
    tmp_path: pathlib.Path, is_open: bool
) -> None:
    with socket.socket() as control:
        control.bind(("127.0.0.1", 0))
        if is_open:
            control.listen()
        address = f"127.0.0.1:{control.getsockname()[1]}"
        node = facts(tmp_path, commands=("echo in > inside",), head=address)
        if is_open:
            run(tmp_path, node)
        else:
            with pytest.raises(SetupError) as failed:
                run(tmp_path, node)
            assert failed.value.step == "reach the head"
            assert address in failed.value.reason
            assert "refused" in failed.value.reason
    assert (tmp_path / "home" / "inside").exists() is is_open


def test_a_failed_step_is_named_with_its_last_lines(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SetupError) as failed:
        run(tmp_path, facts(tmp_path, commands=("true", "seq 100; exit 7")))
    assert failed.value.step == "setup_commands[1]"
    assert failed.value.reason.startswith("exit status 7: ")
    assert failed.value.reason.endswith("100")
    assert "\n  80" not in failed.value.reason


@pytest.mark.parametrize(("files", "step"), [(False, "copy the private files"), (True, "start")])
def test_a_failed_step_of_ours_is_named(tmp_path: pathlib.Path, files: bool, step: str) -> None:
    node = facts(tmp_path, start="echo no luck; exit 3")
    (tmp_path / "home").mkdir()
    if not files:
        (tmp_path / "home" / ".clusterctl-node").write_text("no folder")
    with pytest.raises(SetupError) as failed:
        run(tmp_path, node)
    assert failed.value.step == step
    assert failed.value.reason == "exit status 3: no luck" or not files
    assert setup.NODE_FOLDER not in failed.value.reason


def test_another_python_is_refused_before_anything_is_installed(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SetupError) as failed:
        run(tmp_path, facts(tmp_path, python=(2, 7), commands=("touch ran",)))
    assert failed.value.step == "python version"
    assert "2.7" in failed.value.reason
    assert not (tmp_path / "home" / "ran").exists()


def test_refused_is_waited_for(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    log = SetupLog(io.StringIO())
    shell = ScriptedShell(str(home), [ShellRefused("no listener")])
    assert setup.run(shell, facts(tmp_path), log, deadline_s=30.0) == "started\n"


def test_the_specs_own_command_is_asked_until_the_machine_is_ready(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    file = io.StringIO()
    node = facts(tmp_path, ready="echo x >> asked; [ $(wc -l < asked) -gt 2 ] || { echo booting; false; }")
    shell = ScriptedShell(str(home), [])
    assert setup.run(shell, node, SetupLog(file), deadline_s=60.0) == "started\n"
    assert file.getvalue().count("the machine is not ready yet: exit status 1: booting") == 1, "told once"
    assert (home / "asked").read_text() == "x\nx\nx\n"


def test_a_machine_that_never_becomes_ready_is_given_up_with_its_last_words(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SetupError) as failed:
        run(tmp_path, facts(tmp_path, ready="echo booting; exit 3", commands=("touch ran",)))
    assert failed.value.step == "ready_command"
    assert "exit status 3: booting" in failed.value.reason
    assert not (tmp_path / "home" / "ran").exists()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ShellRefused("x"), "refuses connections"),
        (ShellTimedOut("x"), "does not answer"),
        (ShellAuthFailed("x"), "rejects our identity"),
        (ShellError("broken"), "broken"),
    ],
)
def test_the_three_ways_in_which_a_shell_is_not_there(
    tmp_path: pathlib.Path, error: ShellError, words: str
) -> None:
    with pytest.raises(SetupError) as failed:
        run(tmp_path, facts(tmp_path), [error])
    assert failed.value.step == "wait for the shell"
    assert words in failed.value.reason


def test_a_shell_that_works_and_runs_nothing_is_told_by_its_answer_alone(tmp_path: pathlib.Path) -> None:
    class Broken(ScriptedShell):
        def run(self, command: str, **options: Any) -> CommandResult:  # type: ignore[override]
            return CommandResult(3, "no room")

    with pytest.raises(SetupError) as failed:
        readiness.await_shell(Broken(str(tmp_path), []), print, 60.0)
    assert failed.value.reason == "status 3: no room"


def test_mounts_honour_excludes_and_gitignore(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    for name in ("keep.txt", "skip.log", "deep/also.txt", "deep/not.tmp"):
        (source / name).write_text(name)
    (source / ".gitignore").write_text("*.tmp\n")
    mounts = (Mount("~/data", str(source), rules(["*.log"])),)
    _, log = run(tmp_path, facts(tmp_path, mounts=mounts))
    assert "~/data: 3 sent (27 B), 0 deleted, 5 in all" in log
    target = tmp_path / "home" / "data"
    found = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert found == [".gitignore", "deep/also.txt", "keep.txt"]


def test_a_missing_mount_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SetupError, match="there is no /nowhere"):
        run(tmp_path, facts(tmp_path, mounts=(Mount("x", "/nowhere"),)))


def test_the_head_brings_workers_what_it_has(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "made").write_text("by the head")
    spec = msgspec.structs.replace(SPEC, cluster_synced_files=["~/made", "~/never-made"])
    found = engine_nodes.worker_facts(spec, MACHINE, WORKER, "i", "a:1", "/secret").mounts
    assert [(mount.target, mount.source) for mount in found] == [
        ("~/data", f"{tmp_path}/data"),
        ("~/made", f"{tmp_path}/made"),
    ]


def test_commands_have_no_terminal_and_ask_nobody(tmp_path: pathlib.Path) -> None:
    look = (
        "for n in 0 1 2; do [ ! -t $n ] || echo terminal $n; done; (: < /dev/tty) 2>/dev/null && echo has tty; "
        "read answer || echo nobody answers; echo $DEBIAN_FRONTEND $PIP_NO_INPUT $GIT_TERMINAL_PROMPT"
    )
    node = engine_nodes.head_facts(SPEC, "/secret", "/config", "1.2.3.4")
    _, log = run(tmp_path, facts(tmp_path, commands=(look,), env=node.env))
    of_command = log.partition("step: setup_commands[0]")[2]
    shown = [line.split("   ", 1)[1] for line in of_command.splitlines()[1:] if "   " in line]
    assert shown == ["nobody answers", "noninteractive 1 0", "started"]


class BreakingShell(ScriptedShell):
    """The start command fails with this error, so many times."""

    def __init__(self, home: str, times: int, error: ShellError) -> None:
        super().__init__(home, [])
        self._left = times
        self._error = error

    def run(self, command: str, **options: Any) -> CommandResult:  # type: ignore[override]
        if "echo started" in command and self._left:
            self._left -= 1
            raise self._error
        return super().run(command, **options)


@pytest.mark.parametrize("error", [ShellLost("no luck"), ShellTimedOut("no luck")])
@pytest.mark.parametrize(("times", "comes_up"), [(2, True), (3, False)])
def test_a_step_whose_connection_breaks_or_is_silent_is_run_again(
    tmp_path: pathlib.Path, times: int, comes_up: bool, error: ShellError
) -> None:
    (tmp_path / "home").mkdir()
    log = io.StringIO()
    shell = BreakingShell(str(tmp_path / "home"), times, error)
    if comes_up:
        assert setup.run(shell, facts(tmp_path), SetupLog(log), deadline_s=0.0) == "started\n"
    else:
        with pytest.raises(SetupError, match="start: no luck, 3 times"):
            setup.run(shell, facts(tmp_path), SetupLog(log), deadline_s=0.0)
    assert log.getvalue().count("once more") == 2


def test_a_step_that_takes_too_long_is_not_run_again(tmp_path: pathlib.Path) -> None:
    (tmp_path / "home").mkdir()
    log = io.StringIO()
    shell = BreakingShell(str(tmp_path / "home"), 1, CommandTimedOut("too long"))
    with pytest.raises(SetupError, match="start: too long"):
        setup.run(shell, facts(tmp_path), SetupLog(log), deadline_s=0.0)
    assert "once more" not in log.getvalue()


def test_a_young_machine_may_get_its_keys_late(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "_KEYS_RETRY_S", 0.0)
    errors: list[ShellError] = [ShellRefused("no"), ShellAuthFailed("who?"), ShellAuthFailed("who?")]
    (tmp_path / "home").mkdir()
    log = io.StringIO()
    shell = ScriptedShell(str(tmp_path / "home"), errors)
    setup.run(shell, facts(tmp_path, is_cloud=True), SetupLog(log), deadline_s=60.0)
    assert log.getvalue().count("does not know our key yet") == 2
    with pytest.raises(SetupError, match="rejects our identity"):
        run(tmp_path, facts(tmp_path), [ShellAuthFailed("who?")])
