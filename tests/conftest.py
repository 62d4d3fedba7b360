"""What every test gets: a private place for what the engine leaves on disk, a check that nothing stays, and a
watchdog: when a test exceeds its time, its report shows the stacks of every process of the run, and they are killed.

Every process that a test starts inherits `CLUSTERCTL_TEST_RUN`; that is how strays are found, whoever their
parent became.
"""

from __future__ import annotations

import gc
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Generator, Iterator

import hypothesis
import pytest

from tests import stalls
from tests.leaks import Snapshot, describe_leaks, kill_strays
from tests.watchdog import Watchdog

RUN_ID = uuid.uuid4().hex
# The tests' bytecode is kept also where Python is told to write none: its assertions are rewritten once, not by each
# process of each run.
_DONT_WRITE_BYTECODE, sys.dont_write_bytecode = sys.dont_write_bytecode, False
watchdog = Watchdog(RUN_ID)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--stalls", type=int, metavar="SEED", help="stop processes at random: see tests/stalls.py"
    )
    parser.addoption(
        "--graph-kills", type=int, default=6, metavar="N", help="actors of compiled graphs that are killed"
    )
    parser.addoption(
        "--graph-minutes", type=float, default=0.02, metavar="N", help="how long a compiled graph is executed"
    )
    parser.addoption(
        "--quick", action="store_true", help="only tests without large clusters, hosts, clouds or benchmarks"
    )


def pytest_configure(config: pytest.Config) -> None:
    # No deadline: no test judges speed. No database: nothing is left in the working tree.
    hypothesis.settings.register_profile("suite", deadline=None, database=None)
    hypothesis.settings.load_profile("suite")
    # A shell ignores the one for what it runs in the background, nohup the other, and children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Short: the paths of Unix sockets below it are limited to 107 bytes.
    root = pathlib.Path(tempfile.mkdtemp(prefix="cct-"))
    for name in ("t", "h"):
        (root / name).mkdir()
    os.environ["CLUSTERCTL_TEST_RUN"] = RUN_ID
    os.environ["CLUSTERCTL_TMPDIR"] = str(root / "t")
    os.environ["CLUSTERCTL_HOME"] = str(root / "h")
    # All tests share the processors: workers that gave way to every other test would be slow.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    config.stash[_ROOT] = root
    config.pluginmanager.register(watchdog)
    if config.option.stalls is not None and not config.getoption("numprocesses", None):
        config.stash[_STALLS] = stalls.start(RUN_ID, config.option.stalls)


_ROOT = pytest.StashKey[pathlib.Path]()
_STALLS = pytest.StashKey[subprocess.Popen[bytes]]()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: to look for garbage among it, again and again, finds none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    return True if config.option.quick and str(collection_path).startswith(_NOT_QUICK) else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Each of several processes begins with other files: to rewrite their assertions takes most of the time, and what
    another process has rewritten is only read."""
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker is not None and isinstance(collector, pytest.Directory):
        begin = len(report.result) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        report.result = report.result[begin:] + report.result[:begin]
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # all processes in the same order, and none gets a long file last
        items.sort(key=lambda item: (_place(str(item.path)), str(item.path)))


def _folders(*names: str) -> tuple[str, ...]:
    return tuple(str(pathlib.Path(__file__).parent / name) for name in names)


_SLOW = _folders("programs", "integration", "clusterctl/real", "rows", "scripts", "contract", "testbed")
"""Where the tests are that need large clusters, hosts, clouds or benchmarks."""
_NOT_QUICK = (
    *_SLOW,
    *_folders("sim", "autoscaler/rehearsal", "autoscaler/test_chaos", "clusterctl/artefacts/test_wheels"),
    *_folders("clusterctl/providers/aws/test_interruptions", "runtime/util/test_collective_"),
    *_folders(
        *(f"runtime/api/test_{name}" for name in ("conda", "init", "memory_pressure", "reconstruction"))
    ),
)
"""What `--quick` leaves out: those, many seeds, and of the rest the files that take longest."""
_LONG = (*_SLOW, *_folders("runtime/api", "runtime/util", "sim", "clusterctl", "autoscaler", "runtime/data"))
"""Where the files are that take long, the longest first."""


def _place(path: str) -> int:
    return next((place for place, folder in enumerate(_LONG) if path.startswith(folder)), len(_LONG))


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = _DONT_WRITE_BYTECODE
    gc.collect()
    gc.freeze()  # what there is now stays to the end, and no later collection needs to look at it


def pytest_unconfigure(config: pytest.Config) -> None:
    if _STALLS in config.stash:
        config.stash[_STALLS].terminate()
        config.stash[_STALLS].wait()
    stalls.forget(RUN_ID)
    kill_strays(RUN_ID)
    shutil.rmtree(config.stash[_ROOT], ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a module that leaves a process, thread, descriptor, file or segment behind."""
    if os.environ.get("RAY_MODULE", "runtime") != "runtime":
        yield  # another engine's leaks are not ours to judge
        return
    before = Snapshot.take(RUN_ID)
    yield
    if watchdog.has_bitten(request.module):
        return  # what was killed could not clean up
    leaks = describe_leaks(RUN_ID, before, within_s=60.0)
    gc.freeze()  # libraries that this module was the first to use: half a second of each later collection
    if leaks:
        kill_strays(RUN_ID)
        pytest.fail("left behind:\n  " + "\n  ".join(leaks), pytrace=False)
