"""Runtime environments through the public API, with real processes."""

from __future__ import annotations

import logging
import os
import pathlib
import re
import sys
import threading
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.under_test import OWN, exceptions, init, ray

RuntimeEnv: Any
if OWN:
    from runtime.runtime_env import RuntimeEnv
else:
    from ray.runtime_env import RuntimeEnv  # type: ignore[import-not-found,no-redef]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Folders and archives that environments name."""
    root = tmp_path_factory.mktemp("files")
    working_dir = root / "working_dir"
    (working_dir / "sub").mkdir(parents=True)
    (working_dir / "hello").write_text("world")
    (working_dir / "env_test_module.py").write_text("VALUE = 'working_dir'\n")
    (working_dir / "sub" / "data").write_text("deep")
    (working_dir / "left_out.log").write_text("")
    (working_dir / ".gitignore").write_text("*.log\n")
    package = root / "env_test_package"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 'py_modules'\n")
    (root / "env_test_single.py").write_text("VALUE = 'single'\n")
    with zipfile.ZipFile(root / "remote.zip", "w") as archive:
        archive.writestr("repository-main/env_test_remote.py", "VALUE = 'remote'\n")
        archive.writestr("repository-main/hello", "remote world")
    _write_wheel(root / "env_test_wheel-0.5-py3-none-any.whl", "env_test_wheel", "0.5")
    return root


def _write_wheel(path: pathlib.Path, name: str, version: str) -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.fixture
def stop() -> Iterator[None]:
    """For tests that start a session of their own."""
    ray.shutdown()
    yield
    ray.shutdown()


@pytest.fixture
def plain() -> Iterator[None]:
    """A session without an environment."""
    if not ray.is_initialized() or ray.get_runtime_context().runtime_env:
        ray.shutdown()
        init(num_cpus=2)
    return


@pytest.fixture(scope="module", autouse=True)
def end() -> Iterator[None]:
    yield
    ray.shutdown()


@ray.remote
def variable(name: str) -> str | None:
    return os.environ.get(name)


@ray.remote
def variable_of_child(name: str) -> str | None:
    value: str | None = ray.get(variable.remote(name))
    return value


@ray.remote
class Reader:
    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def of_child(self, name: str) -> str | None:
        value: str | None = ray.get(variable.remote(name))
        return value

    def of_other_child(self, name: str) -> str | None:
        options = {"runtime_env": {"env_vars": {"OTHER": "child"}}}
        value: str | None = ray.get(variable.options(**options).remote(name))
        return value

    def env(self) -> Any:
        return ray.get_runtime_context().runtime_env


def env_vars(**variables: str) -> dict[str, Any]:
    return {"runtime_env": {"env_vars": variables}}


# ---------------------------------------------------------------- variables


def test_variables_of_tasks_do_not_leak(plain: None) -> None:
    assert ray.get(variable.remote("ENV_A")) is None
    assert ray.get(variable.options(**env_vars(ENV_A="1")).remote("ENV_A")) == "1"
    assert ray.get(variable.remote("ENV_A")) is None
    assert ray.get(variable.options(**env_vars(ENV_A="2")).remote("ENV_A")) == "2"
    assert ray.get(variable.options(**env_vars(ENV_A="1")).remote("ENV_A")) == "1"
    assert ray.get(variable.options(runtime_env={}).remote("ENV_A")) is None
    assert ray.get(variable.options(runtime_env=None).remote("ENV_A")) is None
    assert os.environ.get("ENV_A") is None


def test_a_decorator_names_an_environment_and_options_override_it(plain: None) -> None:
    @ray.remote(runtime_env={"env_vars": {"ENV_A": "decorator"}})
    def read() -> str | None:
        return os.environ.get("ENV_A")

    @ray.remote(runtime_env=RuntimeEnv(env_vars={"ENV_A": "class"}))
    class Actor:
        def read(self) -> str | None:
            return os.environ.get("ENV_A")

    assert ray.get(read.remote()) == "decorator"
    assert ray.get(read.options(**env_vars(ENV_A="options")).remote()) == "options"
    assert ray.get(Actor.remote().read.remote()) == "class"
    assert ray.get(Actor.options(**env_vars(ENV_A="options")).remote().read.remote()) == "options"


def test_children_inherit_and_add(plain: None) -> None:
    assert ray.get(variable_of_child.options(**env_vars(ENV_A="parent")).remote("ENV_A")) == "parent"
    actor = Reader.options(**env_vars(ENV_A="actor", OTHER="actor")).remote()
    assert ray.get(actor.variable.remote("ENV_A")) == "actor"
    assert ray.get(actor.of_child.remote("ENV_A")) == "actor"
    assert ray.get(actor.of_other_child.remote("ENV_A")) == "actor"
    assert ray.get(actor.of_other_child.remote("OTHER")) == "child"


def test_references_in_values_are_expanded(plain: None, monkeypatch: pytest.MonkeyPatch) -> None:
    options = env_vars(ENV_A="a", ENV_B="${ENV_A}:${HOME}:${ENV_NONE}:$HOME:$ENV_NONE")
    home = os.environ["HOME"]
    assert ray.get(variable.options(**options).remote("ENV_B")) == f"a:{home}::{home}:$ENV_NONE"


def test_equal_environments_share_workers(plain: None) -> None:
    @ray.remote
    def pid() -> int:
        return os.getpid()

    without = ray.get(pid.remote())
    first = ray.get(pid.options(**env_vars(ENV_A="1")).remote())
    second = ray.get(pid.options(**env_vars(ENV_A="2")).remote())
    assert len({without, first, second}) == 3
    if OWN:  # as many idle workers are kept as there are CPUs, those that worked last
        assert ray.get(pid.options(**env_vars(ENV_A="1")).remote()) == first


def test_variables_that_python_reads_when_it_starts(plain: None) -> None:
    @ray.remote
    def seed() -> Any:
        return hash("x"), os.environ["OMP_NUM_THREADS"]

    runs = [env_vars(PYTHONHASHSEED="0", OMP_NUM_THREADS="3", RUN=run) for run in "12"]
    values = {ray.get(seed.options(**run).remote()) for run in runs}
    assert len(values) == 1
    assert values.pop()[1] == "3"


def test_the_context_knows_the_environment(plain: None) -> None:
    assert ray.get_runtime_context().runtime_env == {}
    assert ray.get_runtime_context().get_runtime_env_string() == "{}"
    env = ray.get(Reader.options(**env_vars(ENV_A="1")).remote().env.remote())
    assert env == {"env_vars": {"ENV_A": "1"}}
    assert isinstance(env, RuntimeEnv)
    assert env.env_vars() == {"ENV_A": "1"}


# ---------------------------------------------------------------- wrong ones


@pytest.mark.parametrize(
    ("env", "error", "words"),
    [
        (1, TypeError, "runtime_env"),
        ("{}", TypeError, "runtime_env"),
        ({"env_vars": {"A": 1}}, TypeError, "env_vars"),
        ({"pip": ["a"], "uv": ["b"]}, ValueError, "at the same time"),
        ({"working_dir": "/tmp"}, ValueError, "a valid URI"),
        ({"py_modules": ["/tmp"]}, ValueError, "a valid URI"),
    ],
)
def test_wrong_environments_of_tasks_and_actors(env: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        variable.options(runtime_env=env).remote("A")
    with pytest.raises(error, match=words):
        Reader.options(runtime_env=env).remote()
    with pytest.raises(error, match=words):

        @ray.remote(runtime_env=env)
        def never() -> None: ...


@pytest.mark.parametrize(
    ("env", "error"),
    [
        ({"env_vars": {"A": 1}}, TypeError),
        ({"working_dir": 10}, TypeError),
        ({"working_dir": "/does/not/exist"}, ValueError),
        ({"py_modules": "."}, TypeError),
        ({"py_modules": ["does_not_exist"]}, ValueError),
        ({"worker_process_setup_hook": 5}, TypeError),
    ],
)
def test_wrong_environments_of_jobs(stop: None, env: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        init(num_cpus=1, runtime_env=env)
    if OWN:
        assert not ray.is_initialized()


def test_what_cannot_be_made_fails_tasks_and_actors(plain: None) -> None:
    bad = {"working_dir": "file:///does/not/exist.zip"}
    here = re.escape(ray.nodes()[0]["NodeManagerAddress"])
    says = rf"(?s)\[Node {here}\] .*does/not/exist"
    with pytest.raises(exceptions.RuntimeEnvSetupError, match=says):
        ray.get(variable.options(runtime_env=bad).remote("A"))
    actor = Reader.options(runtime_env=bad).remote()
    for _ in range(2):
        with pytest.raises(exceptions.RuntimeEnvSetupError, match=says):
            ray.get(actor.variable.remote("A"))
    assert ray.get(variable.remote("A")) is None


@pytest.mark.parametrize(
    "env", [{"conda": "no-such-env"}, {"container": {"worker_path": "x"}}, {"java_jars": ["x.jar"]}]
)
def test_what_is_not_supported_says_so(plain: None, env: dict[str, Any]) -> None:
    with pytest.raises(exceptions.RuntimeEnvSetupError):
        ray.get(variable.options(runtime_env=env).remote("A"))


# ---------------------------------------------------------------- files


@ray.remote
def read(name: str) -> str:
    return pathlib.Path(name).read_text()


@ray.remote
def value_of(module: str) -> Any:
    imported = __import__(module)
    return getattr(imported, "VALUE", None) or imported.VERSION


@ray.remote
class Worker:
    def read(self, name: str) -> str:
        return pathlib.Path(name).read_text()

    def listdir(self) -> list[str]:
        return sorted(os.listdir())


def test_a_working_dir(stop: None, files: pathlib.Path) -> None:
    working_dir = files / "working_dir"
    init(num_cpus=2, runtime_env={"working_dir": str(working_dir), "excludes": ["sub/"]})
    assert ray.get(read.remote("hello")) == "world"
    assert ray.get(value_of.remote("env_test_module")) == "working_dir"
    actor = Worker.remote()
    assert ray.get(actor.read.remote("hello")) == "world"
    assert set(ray.get(actor.listdir.remote())) - {".gitignore", "__pycache__"} == {
        "hello",
        "env_test_module.py",
    }
    uri = ray.get_runtime_context().runtime_env["working_dir"]
    assert uri.startswith("gcs://")
    remote = f"file://{files}/remote.zip"
    assert ray.get(read.options(runtime_env={"working_dir": remote}).remote("hello")) == "remote world"
    assert ray.get(read.options(runtime_env={"working_dir": uri}).remote("hello")) == "world"


def test_a_working_dir_as_an_archive(stop: None, files: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with zipfile.ZipFile(tmp_path / "local.zip", "w") as archive:
        archive.writestr("hello", "zipped")
    init(num_cpus=1, runtime_env={"working_dir": str(tmp_path / "local.zip")})
    assert ray.get(read.remote("hello")) == "zipped"


def test_an_empty_working_dir(stop: None, tmp_path: pathlib.Path) -> None:
    init(num_cpus=1, runtime_env={"working_dir": str(tmp_path)})
    assert ray.get(Worker.remote().listdir.remote()) == []


def test_modules(stop: None, files: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(files))
    import env_test_single  # type: ignore[import-not-found]

    modules = [
        str(files / "env_test_package"),
        env_test_single,
        str(files / "env_test_wheel-0.5-py3-none-any.whl"),
    ]
    modules.append(f"file://{files}/remote.zip")
    init(num_cpus=2, runtime_env={"py_modules": modules})
    names = ["env_test_package", "env_test_single", "env_test_wheel", "env_test_remote"]
    assert ray.get([value_of.remote(name) for name in names]) == ["py_modules", "single", "0.5", "remote"]
    del sys.modules["env_test_single"]


def test_modules_are_found_by_programs_that_workers_start(stop: None, files: pathlib.Path) -> None:
    @ray.remote
    def run() -> str:
        import subprocess

        command = [sys.executable, "-c", "import env_test_package as m; print(m.VALUE)"]
        return subprocess.check_output(command, text=True).strip()

    init(num_cpus=1, runtime_env={"py_modules": [str(files / "env_test_package")]})
    assert ray.get(run.remote()) == "py_modules"


def test_a_folder_that_is_too_large(stop: None, tmp_path: pathlib.Path) -> None:
    with open(tmp_path / "huge.bin", "wb") as file:
        file.truncate(600 << 20)
    if OWN:
        with pytest.raises(exceptions.RuntimeEnvSetupError, match=r"huge\.bin"):
            init(num_cpus=1, runtime_env={"working_dir": str(tmp_path)})
        assert not ray.is_initialized()
    init(num_cpus=1, runtime_env={"working_dir": str(tmp_path), "excludes": ["*.bin"]})
    assert ray.get(Worker.remote().listdir.remote()) == []


# ---------------------------------------------------------------- setup hooks


def test_a_setup_hook_runs_once_in_each_worker(stop: None) -> None:
    def hook() -> None:
        logging.getLogger("env_test").setLevel(17)
        os.environ["HOOK_RUNS"] = os.environ.get("HOOK_RUNS", "") + "x"

    @ray.remote
    def seen() -> Any:
        return logging.getLogger("env_test").level, os.environ["HOOK_RUNS"], os.environ["ENV_A"]

    @ray.remote
    class Actor:
        def __init__(self) -> None:
            self.level = logging.getLogger("env_test").level

        def seen(self) -> Any:
            return self.level, os.environ["HOOK_RUNS"], os.environ["ENV_A"]

    init(num_cpus=2, runtime_env={"worker_process_setup_hook": hook, "env_vars": {"ENV_A": "1"}})
    assert ray.get([seen.remote() for _ in range(4)]) == [(17, "x", "1")] * 4
    assert ray.get(Actor.remote().seen.remote()) == (17, "x", "1")


def test_a_setup_hook_by_its_path(stop: None, tmp_path: pathlib.Path) -> None:
    (tmp_path / "env_test_hooks.py").write_text("import os\ndef hook():\n    os.environ['HOOKED'] = 'yes'\n")
    env = {"working_dir": str(tmp_path), "worker_process_setup_hook": "env_test_hooks.hook"}
    init(num_cpus=1, runtime_env=env)
    assert ray.get(variable.remote("HOOKED")) == "yes"


def test_a_setup_hook_that_fails(stop: None) -> None:
    def hook() -> None:
        raise ValueError("Setup Failed")

    init(num_cpus=1, runtime_env={"worker_process_setup_hook": hook})
    with pytest.raises(exceptions.RayActorError) as caught:
        ray.get(Reader.remote().env.remote())
    assert "Setup Failed" in str(caught.value)
    assert "Failed to execute the setup hook method" in str(caught.value)
    if OWN:
        with pytest.raises(exceptions.RuntimeEnvSetupError, match="Setup Failed"):
            ray.get(variable.remote("A"))


def test_a_setup_hook_that_cannot_be_found(stop: None) -> None:
    init(num_cpus=1, runtime_env={"worker_process_setup_hook": "no_such_module.hook"})
    with pytest.raises(exceptions.RayActorError, match="Failed to execute the setup hook method"):
        ray.get(Reader.remote().env.remote())


def test_a_setup_hook_that_cannot_be_pickled(stop: None) -> None:
    lock = threading.Lock()
    with pytest.raises(exceptions.RuntimeEnvSetupError, match="Failed to export the setup function"):
        init(num_cpus=1, runtime_env={"worker_process_setup_hook": lambda: print(lock)})


# ---------------------------------------------------------------- jobs


def test_a_jobs_environment_is_merged_with_a_tasks(stop: None) -> None:
    init(num_cpus=2, runtime_env={"env_vars": {"ENV_A": "job", "ENV_Z": "job"}})
    assert ray.get(variable.remote("ENV_A")) == "job"
    assert ray.get(variable.options(**env_vars(ENV_A="task")).remote("ENV_A")) == "task"
    assert ray.get(variable.options(**env_vars(ENV_A="task")).remote("ENV_Z")) == "job"
    assert ray.get_runtime_context().runtime_env == {"env_vars": {"ENV_A": "job", "ENV_Z": "job"}}
    assert os.environ.get("ENV_A") is None


def test_a_hook_may_rewrite_the_environment(stop: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_RUNTIME_ENV_HOOK", "tests.runtime.api.test_runtime_env.rewrite")
    monkeypatch.setitem(sys.modules, "tests.runtime.api.test_runtime_env", sys.modules[__name__])
    init(num_cpus=1, runtime_env={"env_vars": {"ENV_A": "1"}})
    assert ray.get(variable.remote("ENV_A")) == "rewritten"


def rewrite(env: Any) -> Any:
    return {**(env or {}), "env_vars": {"ENV_A": "rewritten"}}


# ---------------------------------------------------------------- packages and interpreters


@ray.remote
def wheel_and_python() -> tuple[str, str, str]:
    import env_test_wheel  # type: ignore[import-not-found]

    return env_test_wheel.VERSION, sys.executable, sys.prefix


def test_packages_of_pip(plain: None, files: pathlib.Path) -> None:
    wheel = str(files / "env_test_wheel-0.5-py3-none-any.whl")
    pip = {"packages": [wheel], "pip_install_options": ["--no-index", "--no-deps"]}
    task = wheel_and_python.options(runtime_env={"pip": pip})
    version, python, prefix = ray.get(task.remote())
    assert version == "0.5"
    assert python.startswith(prefix)
    assert prefix != sys.prefix
    with pytest.raises(ImportError):
        ray.get(wheel_and_python.remote())
    assert ray.get(task.remote())[2] == prefix


def test_packages_of_pip_that_do_not_exist(plain: None) -> None:
    pip = {"packages": ["no-such-package-env-test"], "pip_install_options": ["--no-index"]}
    with pytest.raises(
        exceptions.RuntimeEnvSetupError, match="No matching distribution found for no-such-package"
    ):
        ray.get(variable.options(runtime_env={"pip": pip}).remote("A"))
    actor = Reader.options(runtime_env={"pip": pip}).remote()
    with pytest.raises(
        exceptions.RuntimeEnvSetupError, match="No matching distribution found for no-such-package"
    ):
        ray.get(actor.variable.remote("A"))


@pytest.mark.skipif(not OWN, reason="it looks for uv elsewhere")
def test_packages_of_uv(stop: None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\necho "$@" > "$(dirname "$0")/called"\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    init(num_cpus=1)
    env = {"uv": {"packages": ["thing==1"], "uv_pip_install_options": ["--offline"]}}
    assert ray.get(variable.options(runtime_env=env).remote("VIRTUAL_ENV"))
    called = (tmp_path / "called").read_text()
    assert called.startswith("pip install --python ")
    assert "--offline -r " in called


@pytest.mark.skipif(not OWN, reason="Ray waits for ever for a Python that does not start")
def test_another_python(plain: None) -> None:
    @ray.remote
    def flags() -> Any:
        return sys.flags.dev_mode, sys.executable

    command = f"{sys.executable} -X dev"
    assert ray.get(flags.options(runtime_env={"py_executable": command}).remote()) == (True, sys.executable)
    for bad in ("false", "no-such-python"):
        with pytest.raises(exceptions.RuntimeEnvSetupError, match="does not start"):
            ray.get(flags.options(runtime_env={"py_executable": bad}).remote())


def test_a_submitted_jobs_environment_and_its_drivers(stop: None, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = '{"runtime_env": {"env_vars": {"ENV_A": "job", "ENV_B": "job"}}}'
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", submitted)
    with pytest.raises(ValueError, match="Failed to merge the Job's runtime env"):
        init(num_cpus=1, runtime_env={"env_vars": {"ENV_A": "driver"}})
    assert not ray.is_initialized()
    monkeypatch.setenv("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    init(num_cpus=1, runtime_env={"env_vars": {"ENV_A": "driver"}})
    assert ray.get([variable.remote("ENV_A"), variable.remote("ENV_B")]) == ["driver", "job"]
