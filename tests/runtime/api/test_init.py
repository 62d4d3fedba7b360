"""`init`: every argument, the forms of an address, and what it returns."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import resource
import socket
import subprocess
import sys
import textwrap
import threading
import warnings
from typing import Any

import pytest

from runtime.cluster_utils import Cluster
from tests.polling import eventually
from tests.under_test import NAME, OWN, init, ray

own = pytest.mark.skipif(not OWN, reason="Ray fails otherwise, or takes long to")

pytestmark = pytest.mark.usefixtures("fresh")


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"foo": 1}, RuntimeError, r"Unknown keyword argument\(s\): foo"),
        ({"storage": "x"}, RuntimeError, "storage configuration has been removed"),
        ({"local_mode": True}, RuntimeError, "`local_mode` is no longer supported"),
        ({"allow_multiple": True}, RuntimeError, "`allow_multiple` argument is passed"),
        ({"address": ""}, ValueError, "Invalid address format"),
        ({"address": "local", "namespace": 5}, TypeError, "namespace must be None or a string"),
        ({"address": "local", "namespace": ""}, ValueError, '"" is not a valid namespace'),
        ({"address": "local", "object_store_memory": 1000}, ValueError, "minimum allowed is 78643200 bytes"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ray.init(**arguments)
    assert not ray.is_initialized()


ISOLATED: dict[str, Any] = {"enable_resource_isolation": True}


@own
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"num_cpus": 1.5}, ValueError, "Resource quantities must all be whole numbers"),
        ({"num_gpus": 0.5}, ValueError, "Resource quantities must all be whole numbers"),
        ({"resources": {"custom": 0.5}}, ValueError, "Resource quantities must all be whole numbers"),
        ({"num_cpus": -1}, ValueError, "nonnegative"),
        ({"num_cpus": "x"}, TypeError, "CPU must be a number"),
        ({"resources": {"CPU": 1}}, AssertionError, "`CPU` cannot be a custom resource"),
        ({"resources": ["x"]}, TypeError, "resources must be a dict"),
        ({"labels": {"a b": "x"}}, ValueError, "abel"),
        ({"address": 5}, TypeError, "address must be None or a string"),
        ({"address": "here"}, ValueError, "Invalid address format"),
        ({"cgroup_path": "/x"}, ValueError, "resource isolation is not enabled"),
        ({"system_reserved_cpu": 1.0}, ValueError, "resource isolation is not enabled"),
        ({"system_reserved_memory": 10**9}, ValueError, "resource isolation is not enabled"),
        ({**ISOLATED, "cgroup_path": 5}, ValueError, "Invalid value=5 for cgroup_path"),
        ({**ISOLATED, "system_reserved_cpu": "1"}, ValueError, "for system_reserved_cpu"),
        (
            {**ISOLATED, "system_reserved_cpu": 0.1},
            ValueError,
            "system_reserved_cpu=0.1 is less than the minimum",
        ),
        ({**ISOLATED, "system_reserved_cpu": 10**6}, ValueError, "requested system_reserved_cpu=1000000"),
        ({**ISOLATED, "system_reserved_memory": 1.5}, ValueError, "for system_reserved_memory"),
        ({**ISOLATED, "system_reserved_memory": 1000}, ValueError, "is less than the minimum"),
        (
            {**ISOLATED, "system_reserved_memory": 10**16},
            ValueError,
            "system_reserved_memory=10000000000000000",
        ),
        ({**ISOLATED, "include_dashboard": True}, ValueError, "include_dashboard"),
        (
            {**ISOLATED, "address": "127.0.0.1:1"},
            ValueError,
            "enable_resource_isolation must not be provided",
        ),
    ],
)
def test_what_is_refused_before_anything_starts(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ray.init(**arguments)
    assert not ray.is_initialized()


@own
@pytest.mark.parametrize("address", ["auto", "127.0.0.1:1"])
def test_nobody_at_the_address(address: str) -> None:
    with pytest.raises(ConnectionError, match="Could not find any running Ray instance"):
        ray.init(address)


def test_arguments_without_effect_are_accepted(tmp_path: pathlib.Path) -> None:
    init(
        num_cpus=1,
        dashboard_host="127.0.0.1",
        dashboard_port=None,
        proxy_server_url=None,
        _system_config={"max_direct_call_object_size": 1000},
        _node_name="here",
    )
    assert ray.nodes()[0]["NodeName"] == "here"


@own
def test_the_folder_can_be_chosen(tmp_path: pathlib.Path) -> None:
    folder = pathlib.Path("/tmp") / f"cct-{os.getpid()}"
    context = init(num_cpus=1, _temp_dir=str(folder))
    assert context.address_info["session_dir"].startswith(f"{folder}/session_")
    assert ray.get_runtime_context().get_temp_dir() == str(folder)
    ray.shutdown()
    folder.rmdir()


def test_resources_and_labels_of_the_node() -> None:
    init(address="local", num_cpus=3, num_gpus=2, resources={"custom": 4, "none": 0}, labels={"rack": "r1"})
    total = ray.cluster_resources()
    assert (total["CPU"], total["GPU"], total["custom"]) == (3, 2, 4)
    assert "none" not in total
    (node,) = ray.nodes()
    assert node["Labels"]["rack"] == "r1"
    assert node["Labels"]["ray.io/node-id"] == node["NodeID"]


@own
def test_more_files_may_be_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1000), hard))
    init(num_cpus=1)
    raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raised == min(hard, 65536)


# ---------------------------------------------------------------- what comes back


def test_the_context() -> None:
    context = init(address="local", num_cpus=1)
    assert type(context).__name__ == "RayContext"
    assert set(context.address_info) == {
        *"node_ip_address redis_address object_store_address raylet_socket_name webui_url session_dir".split(),
        *"metrics_export_port gcs_address address dashboard_agent_listen_port node_id".split(),
    }
    assert context.address_info["gcs_address"] == context.address_info["address"]
    assert context.address_info["node_id"] == ray.get_runtime_context().get_node_id()
    assert (context.dashboard_url, context.ray_version) == ("", ray.__version__)
    assert context.python_version == ".".join(map(str, sys.version_info[:3]))
    assert isinstance(context.ray_commit, str)
    assert repr(context).startswith("RayContext(dashboard_url='', python_version=")
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        assert context["address"] == context.address_info["address"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert set(context) == set(context.address_info)
        assert len(context) == 11
        assert context.get("nothing", 1) == 1
        with pytest.raises(KeyError):
            context["nothing"]
    context.disconnect()
    assert not ray.is_initialized()


@own
def test_a_dashboard_is_a_job_api(monkeypatch: pytest.MonkeyPatch) -> None:
    from runtime.job_submission import JobSubmissionClient

    context = init(
        address="local", num_cpus=3, labels={"rack": "r1"}, include_dashboard=True, _node_name="here"
    )
    assert context.address_info["webui_url"] == context.dashboard_url
    assert ray.cluster_resources()["CPU"] == 3
    assert (ray.nodes()[0]["NodeName"], ray.nodes()[0]["Labels"]["rack"]) == ("here", "r1")
    session = pathlib.Path(context.address_info["session_dir"])
    program = f"import {NAME} as ray; ray.init(); print(ray.cluster_resources()['CPU'])"
    for address in (context.dashboard_url, f"http://{context.dashboard_url}", None):
        client = JobSubmissionClient(address)
        job = client.submit_job(entrypoint=f'"{sys.executable}" -c "{program}"')
        assert eventually(lambda: client.get_job_status(job).is_terminal())  # noqa: B023
        assert client.get_job_logs(job) == "3.0\n"
    ray.shutdown()
    assert not session.exists()
    with pytest.raises(ConnectionError):
        JobSubmissionClient(f"http://{context.dashboard_url}")


@own
def test_the_port_of_the_job_api_is_chosen() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RuntimeError, match="is in use by another program"):
            init(address="local", include_dashboard=True, dashboard_port=taken.getsockname()[1])
        port = taken.getsockname()[1]
    context = init(address="local", num_cpus=1, include_dashboard=True, dashboard_port=port)
    assert context.dashboard_url == f"127.0.0.1:{port}"


@own
def test_a_head_of_a_driver_ends_with_it(tmp_path: pathlib.Path) -> None:
    program = (
        f"import os, {NAME} as ray; c = ray.init(address='local', num_cpus=1, include_dashboard=True)\n"
        "print(c.address_info['session_dir'], flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    session = pathlib.Path(done.stdout.strip())
    assert session.name.startswith("session_"), done.stderr
    assert eventually(lambda: not session.exists())


def test_twice() -> None:
    first = init(address="local", num_cpus=1)
    for again in ({}, {"address": "auto"}, {"num_cpus": 2}):
        with pytest.raises(
            RuntimeError, match=r"Maybe you called ray\.init twice by accident\?.*ignore_reinit_error"
        ):
            ray.init(**again)
    second = ray.init(ignore_reinit_error=True)
    assert second.address_info["session_dir"] == first.address_info["session_dir"]


def test_the_namespace_by_job_configuration_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    job_config = importlib.import_module(f"{NAME}.job_config").JobConfig
    monkeypatch.setenv("RAY_NAMESPACE", "by environment")
    init(address="local", num_cpus=1, job_config=job_config(ray_namespace="by job"))
    assert ray.get_runtime_context().namespace == "by job"
    ray.shutdown()
    if OWN:
        init(num_cpus=1)
        assert ray.get_runtime_context().namespace == "by environment"


def test_job_configurations() -> None:
    import importlib

    job_config = importlib.import_module(f"{NAME}.job_config").JobConfig
    config = job_config(metadata={"a": "b"}, runtime_env={"env_vars": {"X": "1"}})
    config.set_metadata("c", "d")
    config.set_ray_namespace("n")
    assert (config.metadata, config.ray_namespace) == ({"a": "b", "c": "d"}, "n")
    assert job_config.from_json({"ray_namespace": "n", "unknown": 1}).ray_namespace == "n"
    for wrong in (
        lambda: job_config(default_actor_lifetime="x"),
        lambda: config.set_default_actor_lifetime("x"),
    ):
        with pytest.raises(ValueError, match="Default actor lifetime must be one of"):
            wrong()
    with pytest.raises(TypeError, match="The type of code search path is incorrect"):
        job_config(code_search_path="x")


@own
def test_the_lifetime_of_actors_that_do_not_say() -> None:
    from runtime.job_config import JobConfig

    @ray.remote(num_cpus=0)
    class Actor:
        def ping(self) -> int:
            return 1

    init(num_cpus=1, namespace="n", job_config=JobConfig(default_actor_lifetime="detached"))
    stays, goes = (
        Actor.options(name="stays").remote(),
        Actor.options(name="goes", lifetime="non_detached").remote(),
    )
    assert ray.get([stays.ping.remote(), goes.ping.remote()]) == [1, 1]
    del stays, goes
    assert eventually(lambda: ray.util.list_named_actors() == ["stays"])
    assert ray.get(ray.get_actor("stays").ping.remote()) == 1


# ---------------------------------------------------------------- without init


@pytest.mark.parametrize("call", ["nodes", "cluster_resources", "available_resources"])
def test_the_state_of_nothing(call: str) -> None:
    with pytest.raises(ray.exceptions.RaySystemError, match="Ray has not been started yet"):
        getattr(ray, call)()
    assert not ray.is_initialized()


@own
def test_calls_that_connect_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    @ray.remote
    def one() -> int:
        return 1

    ray.put(1)
    assert ray.is_initialized()
    ray.shutdown()
    cluster = Cluster(initialize_head=True)
    try:
        monkeypatch.setenv("RAY_ADDRESS", str(cluster.address))
        for call in (
            lambda: ray.put(1),
            lambda: ray.get([]),
            lambda: ray.wait([]),
            lambda: ray.get(one.remote()),
            ray.get_runtime_context,
            ray.get_gpu_ids,
        ):
            call()
            assert ray.is_initialized()
            ray.shutdown()
    finally:
        cluster.shutdown()
    monkeypatch.setenv("RAY_ENABLE_AUTO_CONNECT", "0")
    with pytest.raises(ray.exceptions.RaySystemError, match="Ray has not been started yet"):
        ray.put(1)


@own
def test_threads_that_connect_by_themselves_share_one_session() -> None:
    values: list[Any] = []
    threads = [threading.Thread(target=lambda: values.append(ray.get(ray.put(1)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [1] * 4


# ---------------------------------------------------------------- other processes and threads


def joins(*arguments: str, **environment: str) -> list[str]:
    """How many CPUs the clusters have to which these arguments of `init` lead another program, one after the other."""
    look = "print(ray.cluster_resources()['CPU']); ray.shutdown()"
    program = "; ".join([f"import {NAME} as ray", *(f"ray.init({given}); {look}" for given in arguments)])
    root = str(pathlib.Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root, **environment}
    return subprocess.check_output(
        [sys.executable, "-c", program], env=environment, text=True, timeout=60
    ).split()


@own
def test_another_program_joins() -> None:
    context = init(num_cpus=7)
    address = context.address_info["address"]
    ways = ("'auto'", repr(address), "'local', num_cpus=3", "num_cpus=3")
    assert joins(*ways) == ["7.0", "7.0", "3.0", "3.0"]
    assert joins("", RAY_ADDRESS=address) == ["7.0"]
    assert ray.cluster_resources()["CPU"] == 7


@own
def test_localhost_and_the_environment_name_a_cluster() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 5})
    try:
        address = str(cluster.address).replace("127.0.0.1", "localhost")
        assert joins(repr(address)) == ["5.0"]
        init(address="local", num_cpus=7)  # the cluster that "auto" would find without the variable
        assert joins("", "'auto'", "'local', num_cpus=3", RAY_ADDRESS=address) == ["5.0", "5.0", "3.0"]
        assert joins(repr(address), RAY_ADDRESS="127.0.0.1:1") == ["5.0"]
        assert joins("'auto'", RAY_ADDRESS="") == ["7.0"]
    finally:
        cluster.shutdown()
    assert joins("'auto', num_cpus=2", RAY_ADDRESS="local") == ["2.0"]


@own
@pytest.mark.parametrize("address", [None, "auto"])
def test_the_address_of_a_job_api_is_refused(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://localhost:8265")
    with pytest.raises(ValueError, match=r"Invalid Ray address: .* is the address of a job API"):
        ray.init(address)


@own
@pytest.mark.parametrize(
    "arguments",
    [
        {"num_cpus": 1},
        {"num_gpus": 1},
        {"resources": {"a": 1}},
        {"labels": {"a": "b"}},
        {"object_store_memory": 10**9},
        {"_system_config": {"a": 1}},
    ],
)
def test_who_joins_brings_nothing(arguments: dict[str, Any]) -> None:
    (name,) = arguments
    with pytest.raises(
        ValueError, match=f"When connecting to an existing cluster, {name} must not be provided"
    ):
        ray.init("auto", **arguments)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("logging_level='WARNING'", {"warned": True, "told": False}),
        ("logging_level=10", {"warned": True, "told": True}),
        ("logging_format='FORMAT %(message)s'", {"warned": True, "told": True, "FORMAT": True}),
    ],
)
def test_the_drivers_own_log(arguments: str, shown: dict[str, bool]) -> None:
    program = (
        f"import logging, {NAME} as ray; ray.init(address='local', num_cpus=1, {arguments})\n"
        f"log = logging.getLogger('{NAME}')\nlog.info('told')\nlog.warning('warned')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert {word: word in done.stderr for word in shown} == shown


def test_logging_may_be_left_alone() -> None:
    program = (
        f"import logging, {NAME} as ray; log = logging.getLogger('{NAME}'); log.setLevel(logging.ERROR)\n"
        "ray.init(address='local', num_cpus=1, configure_logging=False, logging_level='DEBUG')\n"
        "print(log.level == logging.ERROR)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr


@own
def test_from_another_thread() -> None:
    thread = threading.Thread(target=lambda: init(address="local", num_cpus=1))
    thread.start()
    thread.join()
    assert ray.get(ray.put(2)) == 2


def _in_child(queue: Any) -> None:
    before = ray.is_initialized()
    init(num_cpus=2)
    queue.put((before, ray.get(ray.put(5)), ray.cluster_resources()["CPU"]))
    ray.shutdown()


@own
def test_a_forked_child_starts_its_own() -> None:
    init(num_cpus=1)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == (False, 5, 2.0)
    child.join(60)
    assert ray.cluster_resources()["CPU"] == 1
    queue.close()
    queue.join_thread()


@own
def test_workers_find_the_modules_that_the_driver_finds(tmp_path: pathlib.Path) -> None:
    for folder in ("script", "added", "by_environment", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"in_{folder}.py").write_text("def value():\n    return __name__\n")
    program = """
        import sys, os
        sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "added"))
        import runtime as ray
        import in_script, in_added, in_by_environment

        @ray.remote
        def names():
            import in_here
            return [m.value() for m in (in_script, in_added, in_by_environment, in_here)]

        ray.init(num_cpus=1)
        print(ray.get(names.remote()))
        """
    (tmp_path / "script" / "program.py").write_text(textwrap.dedent(program))
    root = str(pathlib.Path(__file__).parents[3])
    out = subprocess.check_output(
        [sys.executable, "../script/program.py"],
        cwd=tmp_path / "here",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "by_environment"), root])},
        text=True,
        timeout=60,
    )
    assert out.strip() == "['in_script', 'in_added', 'in_by_environment', 'in_here']"


# ---------------------------------------------------------------- names of the package


def test_names_of_the_package() -> None:
    assert (ray.SCRIPT_MODE, ray.WORKER_MODE) == (0, 1)
    assert str(ray.Language.PYTHON) == "PYTHON"
    assert ray.__version__ == "2.60.0"
    assert isinstance(ray.__commit__, str)
    for name in ("DynamicObjectRefGenerator", "ObjectRefGenerator", "ClusterID", "ObjectID", "LoggingConfig"):
        assert isinstance(getattr(ray, name), type)
    assert ray.cloudpickle.loads(ray.cloudpickle.dumps(lambda: 3))() == 3
    with pytest.raises(AttributeError):
        _ = ray.nothing_of_that_name


@own
def test_what_is_not_here_says_so() -> None:
    for library in ("workflow", "widgets"):
        with pytest.raises(ImportError, match=f"'{library}' is not part of this engine"):
            getattr(ray, library)
    for call in (lambda: ray.java_function("a", "b"), lambda: ray.cpp_function("a")):
        with pytest.raises(NotImplementedError, match="workers of another language"):
            call()


@own
def test_the_builder_of_clients() -> None:
    context = init(num_cpus=1)
    address = context.address_info["address"]
    ray.shutdown()
    builder = ray.client(address).namespace("n").env({"env_vars": {"A": "1"}})
    assert isinstance(builder, ray.ClientBuilder)
    with pytest.raises(ConnectionError, match="Failed to connect to ray://"):
        builder.connect()
    with ray.client("local").namespace("mine").connect():
        assert ray.get_runtime_context().namespace == "mine"
