"""The runtime as archives: the same content gives the same name, and what is installed of them is an ordinary
virtual environment."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from clusterctl.artefacts.target import Target
from clusterctl.launcher import shipping
from clusterctl.launcher.shipping import Shipment
from clusterctl.shell import archive

HERE = Target.here() or pytest.fail("no machine has a Python like this one")
SITE = f"lib/python{HERE.version}/site-packages"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def shipment(cache: Path) -> Shipment:
    return shipping.packed(HERE, str(cache), ["ssh"])


@pytest.fixture(scope="module")
def head(shipment: Shipment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head's runtime, installed; nobody changes it."""
    return install(shipment, tmp_path_factory.mktemp("head"))


@pytest.fixture(scope="module")
def worker(shipment: Shipment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A worker's runtime, installed; nobody changes it."""
    return install(shipment.for_worker(), tmp_path_factory.mktemp("worker"))


def install(shipment: Shipment, folder: Path) -> Path:
    """Installs as on a node; returns the folder of its runtime."""
    base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    data = b"".join(archive.packed(shipment.contents()))
    subprocess.run(["sh", "-c", shipment.install(str(folder), base)], check=True, input=data)
    return folder / "runtime"


def ask(python: Path, program: str) -> str:
    ran = subprocess.run(
        [python, "-I", "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
        env={"PATH": "/bin"},
    )
    return ran.stdout.strip()


def test_it_is_built_once(shipment: Shipment, cache: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert [part.name for part in shipment.archives] == ["runtime", "head"]
    assert shipping.packed(HERE, str(cache), ["ssh"]) == shipment
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == before
    assert all(Path(part.file).stat().st_mode & 0o077 == 0 for part in shipment.archives)


def test_a_head_has_all_and_ships_on_what_workers_need(shipment: Shipment, head: Path) -> None:
    python = head / "bin" / "python"
    assert ask(python, "import sys; print(sys.prefix)") == str(head)
    assert ask(python, "import clusterctl.head.server, paramiko; print('fine')") == "fine"
    assert ask(python, "import runtime; print(runtime.__file__)").startswith(str(head))
    own = ask(python, "from clusterctl.launcher import shipping; print(shipping.shipped().digest)")
    assert own == shipment.digest
    to_workers = ask(
        python,
        "from clusterctl.artefacts.target import Target; from clusterctl.launcher import shipping; "
        "print(shipping.for_worker(Target.here()).archives[0].file)",
    )
    assert Path(to_workers).is_file()
    subprocess.run(
        [head / "bin" / "clusterctl", "--help"],
        check=True,
        stdout=subprocess.DEVNULL,
        env={"PATH": "/bin"},
    )


def test_a_worker_has_no_more_than_the_engine_needs_and_keeps_no_archive(
    shipment: Shipment, tmp_path: Path
) -> None:
    part = shipment.for_worker()
    runtime = install(part, tmp_path)
    assert (runtime / "digest").read_text().strip() == part.digest != shipment.digest
    assert not list(tmp_path.rglob("*.tar*"))
    python = runtime / "bin" / "python"
    found = ask(
        python,
        "import importlib.util as u; print([bool(u.find_spec(n)) for n in ('msgspec', 'uvicorn', 'paramiko')])",
    )
    assert found == "[True, False, False]"


def test_it_is_laid_out_as_pythons_own_module_does_it(worker: Path, tmp_path: Path) -> None:
    venv.create(tmp_path, symlinks=True)
    assert {path.name for path in worker.iterdir()} - {"digest", "pip.whl"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert (worker / "lib64").readlink() == (tmp_path / "lib64").readlink()
    python = worker / "bin" / "python"
    program = "import sys, sysconfig; print(sys.prefix != sys.base_prefix, sysconfig.get_path('purelib'))"
    assert ask(python, program) == f"True {worker / SITE}"
    named = ask(worker / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}", program)
    assert named == f"True {worker / SITE}"


def test_a_workers_part_has_all_that_runs_there(worker: Path) -> None:
    python = worker / "bin" / "python"
    modules = (
        "runtime._node.__main__, runtime._process.main, clusterctl.head.join, clusterctl.jobs.placed, yaml"
    )
    assert ask(python, f"import {modules}; print('fine')") == "fine"
    every = "import runtime; [getattr(runtime, name) for name in runtime.__all__]; print('fine')"
    assert ask(python, every) == "fine"
    assert [path.name for path in python.parent.iterdir() if "clusterctl" in path.name] == []  # a head's


def test_a_whole_runtime_stays_under_those_who_run_on_it(shipment: Shipment, tmp_path: Path) -> None:
    part = shipment.for_worker()
    runtime = install(part, tmp_path)
    (runtime / "left").touch()
    install(part, tmp_path)
    assert (runtime / "left").exists()
    (runtime / "digest").write_text("another\n")
    install(part, tmp_path)
    assert not (runtime / "left").exists()
    (runtime / "left").touch()
    (runtime / "digest").unlink()  # as where the connection broke
    install(part, tmp_path)
    assert not (runtime / "left").exists()
    assert (runtime / "digest").read_text().strip() == part.digest


def test_pip_that_is_here_travels_as_a_wheel(worker: Path) -> None:
    python = worker / "bin" / "python"
    assert ask(python, "import importlib.util as u; print(u.find_spec('pip'))") == "None", "it is for others"
    assert ask(python, "from runtime._system import location as l; print(l.has_pip_wheel())") == "True"
    ran = subprocess.run(
        [python, "-I", worker / "pip.whl" / "pip", "--version"], check=True, capture_output=True
    )
    assert ran.stdout.decode().split()[1] == importlib.metadata.version("pip")


def test_distributions_have_their_metadata_and_files(head: Path) -> None:
    python = head / "bin" / "python"
    names = ("msgspec", "pyyaml", "cloudpickle", "typer", "clusterctl")
    versions = f"import importlib.metadata as m; print(*(m.version(n) for n in {names}))"
    assert ask(python, versions) == ask(Path(sys.executable), versions)
    there = "import importlib.metadata as m; print(all(f.locate().exists() for f in m.files('cloudpickle')))"
    assert ask(python, there) == "True"
    command = (
        "import importlib.metadata as m; print(*m.entry_points(group='console_scripts', name='clusterctl'))"
    )
    assert "clusterctl.__main__:main" in ask(python, command)


def test_modules_have_text_and_docstrings_and_tracebacks_show_the_place_in_a_line(worker: Path) -> None:
    python = worker / "bin" / "python"
    docs = "import inspect, runtime; print(bool(runtime.get.__doc__), 'def get' in inspect.getsource(runtime.get))"
    assert ask(python, docs) == "True True"
    error = (
        "import traceback\nfrom runtime._system import ready\n"
        "try: ready.Ready('not a number').tell({})\nexcept Exception: print(traceback.format_exc())"
    )
    shown = ask(python, error)
    assert str(worker / SITE / "runtime" / "_system" / "ready.py") in shown
    assert "^^^" in shown


def test_it_finds_what_it_needs_of_itself(worker: Path) -> None:
    python = worker / "bin" / "python"
    program = (
        "import runtime.compat.ray as alias, os, subprocess, sys; alias.install(); import ray; "
        "subprocess.run([sys.executable, '-c', 'import ray, runtime; print(ray is runtime)'], check=True)"
    )
    assert ask(python, program) == "True"
    error = (
        "from runtime._task_error import format_user_traceback as text\n"
        "from runtime.exceptions import RayTaskError as Error\n"
        "try: Error.as_instanceof_cause(None)\n"
        "except Exception as error: print(text(error))"
    )
    assert "runtime/" not in ask(python, error), "our frames are nobody's business"
    assert ask(python, "from runtime._system import location as l; print(l.is_installed())") == "True"


def test_programs_run_also_where_another_command_starts_their_python(worker: Path, tmp_path: Path) -> None:
    python = worker / "bin" / "python"
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, runtime\n"
        "runtime.init(num_cpus=1)\n"
        "@runtime.remote\n"
        "def where(): return runtime.__file__\n"
        "other = where.options(runtime_env={'py_executable': f'{sys.executable} -u'})\n"
        "print(*runtime.get([where.remote(), other.remote()]))\n"
    )
    ran = subprocess.run(
        [python, program],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        timeout=60,
    )
    assert ran.stdout.split() == [str(worker / SITE / "runtime" / "__init__.py")] * 2


def test_what_is_there_is_compiled(shipment: Shipment, tmp_path: Path) -> None:
    python = install(shipment.for_worker(), tmp_path) / "bin" / "python"
    there = {path: path.stat().st_mtime for path in tmp_path.rglob("*.pyc")}
    modules = list(tmp_path.rglob("*.py"))
    assert len(there) == len(modules)
    ask(python, "import clusterctl.head.worker, clusterctl.head.join, runtime._process.main")
    assert {path: path.stat().st_mtime for path in tmp_path.rglob("*.pyc")} == there
