"""What a zygote makes of the modules that it is to import."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from runtime._process import preloading
preloading.DEVICES = (sys.argv[1],)
before = dict(os.environ)
found = preloading.preload(sys.argv[2:], False)
assert dict(os.environ) == before
print(sorted(found.missing), found.refusal or preloading.unfit() or "fit")
"""
IN_TIME = """
import socket, sys
from runtime._process import preloading
with preloading.ended_by(socket.socket(fileno=int(sys.argv[1]))):
    preloading.preload(["pt_hangs"], False)
"""
MODULES = {
    "pt_fine": "",
    "pt_threads": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    "pt_joined": "import threading\nt = threading.Thread(target=int)\nt.start()\nt.join()",
    "pt_device": "import os, sys\nheld = open(sys.argv[1] + 'ctl', 'w')",
    "pt_fails": "1 / 0",
    "pt_exits": "raise SystemExit(3)",
    "pt_needs": "import pt_no_such_module",
    "pt_hangs": "import time\nprint('hangs', flush=True)\ntime.sleep(600)",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def environment(folder: Path) -> dict[str, str]:
    known = os.environ.get("PYTHONPATH", "")
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), known])),
    }


@pytest.mark.parametrize(
    ("modules", "says"),
    [
        (["pt_fine", "json.decoder", "pt_joined"], "[] fit"),
        (["pt_no_such_module", "pt_fine.no_such", "pt_fine"], "['pt_fine.no_such', 'pt_no_such_module'] fit"),
        (["pt_threads"], "[] it has 2 threads after the imports"),
        (["pt_device"], "[] the imports opened FOLDER/devicectl"),
        (["pt_fails"], "ZeroDivisionError"),
        (["pt_exits"], "SystemExit: 3"),
        (["pt_needs"], "No module named 'pt_no_such_module'"),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_imports_allow(folder: Path, modules: list[str], says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder / "device"), *modules],
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert says.replace("FOLDER", str(folder)) in done.stdout, done.stderr


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_arrow_is_fit(folder: Path) -> None:
    test_what_the_imports_allow(folder, ["pyarrow"], "[] fit")


def test_a_library_that_ends_its_threads_at_a_fork_is_fit() -> None:
    program = (
        "import threading, os\nfrom runtime._process import preloading\nstop = threading.Event()\n"
        "thread = threading.Thread(target=stop.wait)\nthread.start()\n"
        "os.register_at_fork(before=lambda: (stop.set(), thread.join()))\nprint(preloading.unfit() or 'fit')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "fit", done.stderr


def test_an_import_that_hangs_ends_with_the_agent(folder: Path) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", IN_TIME, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment(folder),
            stdout=subprocess.PIPE,
        )
    assert process.stdout is not None
    with process.stdout, ours:
        assert process.stdout.readline() == b"hangs\n"
    assert process.wait(60) == -signal.SIGIO
