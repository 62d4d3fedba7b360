"""The words of what programs print that programs and people match on. See `test_words`; the table holds for Ray too."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

from tests.under_test import OWN

ROOT = str(pathlib.Path(__file__).parents[3])
PROGRAMS: list[tuple[str, str, list[str]]] = [
    ("a new cluster", "", [r"Started a local Ray instance\."]),
    (
        "an existing cluster",
        """
        import subprocess, sys
        joins = "import ALIAS as ray; ray.init('auto')"
        joined = subprocess.run([sys.executable, "-c", joins], stderr=subprocess.PIPE, text=True, check=True)
        print(joined.stderr, file=sys.stderr)
        """,
        [r"Connecting to existing Ray cluster at address: .*\.\.\.", r"Connected to Ray cluster\."],
    ),
    (
        "a large function",
        """
        data = bytes(11 * 2**20)
        ray.get(ray.remote(lambda: len(data)).remote())
        """,
        [r"The remote function .*<lambda> is very large \(11 MiB\)\."],
    ),
    (
        "a class that is no base class",
        """
        class Meta(type):
            def __new__(meta, name, bases, body):
                if any(isinstance(base, Meta) for base in bases):
                    raise TypeError("final")
                return super().__new__(meta, name, bases, body)

        class Final(Exception, metaclass=Meta):
            pass

        @ray.remote
        def fails():
            raise Final

        try:
            ray.get(fails.remote())
        except ray.exceptions.RayTaskError:
            pass
        """,
        ["can't be subclassed.*raised as RayTaskError only"],
    ),
    (
        "a blocking get in a coroutine",
        """
        import time

        @ray.remote
        def slow():
            time.sleep(0.5)

        @ray.remote
        class Asynchronous:
            async def waits(self):
                return ray.get(slow.remote())

        ray.get(Asynchronous.remote().waits.remote())
        """,
        [r"Using blocking ray\.get inside async actor\."],
    ),
    (
        "a constructor that fails",
        """
        @ray.remote
        class Broken:
            def __init__(self):
                raise ValueError

            def ok(self): ...

        try:
            ray.get(Broken.remote().ok.remote())
        except ray.exceptions.ActorDiedError:
            pass
        """,
        [
            "Exception raised in creation task: The actor died because of an error raised in its creation task, "
        ],
    ),
    (
        "a task that nothing can run",
        """
        import sys
        infeasible = ray.remote(resources={"nosuch": 1})(lambda: 1).remote()
        sys.stdin.readline()
        """,
        ["No available node types can fulfill resource request"],
    ),
    (
        "SIGTERM handlers of the program and of an actor",
        """
        import os, signal, sys

        @ray.remote
        class Stopped:
            def __init__(self):
                signal.signal(signal.SIGTERM, lambda *_: print("the actor's handler", flush=True))

            def stop(self):
                os.kill(os.getpid(), signal.SIGTERM)

        def stop(*_):
            print("the program's handler", flush=True)
            sys.exit(0)

        stopped = Stopped.remote()
        ray.get([stopped.stop.remote(), stopped.stop.remote()])
        signal.signal(signal.SIGTERM, stop)
        os.kill(os.getpid(), signal.SIGTERM)
        """,
        ["the actor's handler", "the program's handler"],
    ),
    (
        "an error that nobody catches",
        """
        @ray.remote
        def fails():
            raise ValueError("boom")

        ray.get(fails.remote())
        """,
        [r"ray\.exceptions\.RayTaskError\(ValueError\): ray::fails\(\) \(pid="],
    ),
    (
        "an error that is uncaught, of the engine",
        "ray.get(ray.remote(num_cpus=99)(lambda: 1).remote(), timeout=0.1)",
        [r"ray\.exceptions\.GetTimeoutError: Get timed out"],
    ),
]


@pytest.mark.parametrize(
    ("program", "words"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
def test_output(program: str, words: list[str], tmp_path: pathlib.Path) -> None:
    file = tmp_path / "program.py"
    head = "import ray\nray.init(address='local', num_cpus=1)\n"
    file.write_text(head + textwrap.dedent(program).replace("ALIAS", "runtime" if OWN else "ray"))
    environment = {**os.environ, "PYTHONPATH": ROOT, "RAY_AUTH_MODE": "disabled"}
    environment.pop("RAY_ADDRESS", None)
    text = ""
    with subprocess.Popen(
        [sys.executable, *(["-m", "runtime.compat.ray"] if OWN else []), str(file)],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:  # until it has said all, or has ended
            text += re.sub(r"\x1b\[\d+m", "", line)
            if all(re.search(pattern, text) for pattern in words):
                break
        process.communicate("\n", timeout=120)
    for pattern in words:
        assert re.search(pattern, text), text
