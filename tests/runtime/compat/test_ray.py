"""`import ray` as the alias: programs run as processes of their own, as users run them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
import zipfile

import pytest

ROOT = str(pathlib.Path(__file__).parents[3])


def run(*arguments: str, cwd: pathlib.Path, check: bool = True) -> str:
    environment = {**os.environ, "PYTHONPATH": ROOT}
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=60
    )
    if check:
        assert ended.returncode == 0, ended.stderr
    return ended.stdout if check else ended.stderr


def run_with_alias(program: str, *arguments: str, folder: pathlib.Path) -> str:
    (folder / "program.py").write_text(textwrap.dedent(program))
    return run("-m", "runtime.compat.ray", "program.py", *arguments, cwd=folder)


def test_every_module_is_the_same_object_under_both_names(tmp_path: pathlib.Path) -> None:
    out = run_with_alias(
        """
        import sys
        from ray.util.placement_group import placement_group as by_module
        import ray.util.placement_group
        import ray.util.scheduling_strategies as strategies
        from ray import exceptions, ObjectRef
        from ray.actor import ActorHandle
        import runtime, runtime.actor

        print(ray is runtime, sys.modules["ray.util"] is runtime.util, ray.exceptions is runtime.exceptions)
        print(ActorHandle is runtime.actor.ActorHandle, ObjectRef is runtime.ObjectRef)
        print(ray.util.placement_group is by_module)  # the function, and not the module of that name
        print(runtime.__spec__.name, runtime.util.__spec__.name)
        """,
        folder=tmp_path,
    )
    assert out.splitlines() == ["True True True", "True True", "True", "runtime runtime.util"]


def test_a_program_its_workers_and_their_children(tmp_path: pathlib.Path) -> None:
    (tmp_path / "helper.py").write_text("import ray\n\nclass Odd(ray.exceptions.RayError):\n    pass\n")
    out = run_with_alias(
        """
        import subprocess, sys
        import ray
        from helper import Odd

        class Own(Exception):
            pass

        @ray.remote
        def fails(error):
            raise error

        @ray.remote
        def looks():
            import ray, runtime
            from ray.exceptions import RayTaskError
            child = subprocess.check_output(
                [sys.executable, "-c", "import ray, runtime, ray.util; print(ray is runtime)"], text=True
            )
            return ray is runtime, RayTaskError, child.strip()

        @ray.remote
        class Actor:
            def child(self):
                import ray
                return ray.get(looks.remote())[0]

        if __name__ == "__main__":
            print(sys.argv)
            with ray.init(num_cpus=2):
                same, cls, child = ray.get(looks.remote())
                print(same, cls is ray.exceptions.RayTaskError, child)
                print(ray.get(Actor.remote().child.remote()))
                for error in (Own("own"), Odd("odd")):
                    try:
                        ray.get(fails.remote(error))
                    except (Own, Odd) as raised:
                        print(isinstance(raised, ray.exceptions.RayTaskError), type(raised.cause).__name__)
        """,
        "first",
        "--second",
        folder=tmp_path,
    )
    assert out.splitlines() == [
        "['program.py', 'first', '--second']",
        "True True True",
        "True",
        "True Own",
        "True Odd",
    ]


def test_preloaded_modules_know_the_alias(tmp_path: pathlib.Path) -> None:
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        archive.writestr(
            "top/uses_ray.py", "import os\nfrom ray.exceptions import RayError\npid = os.getpid()\n"
        )
    out = run_with_alias(
        """
        import subprocess, sys
        import ray

        @ray.remote(runtime_env={"py_modules": [f"file://{sys.argv[1]}/package.zip"], "preload": ["uses_ray"]})
        def task():
            import os, uses_ray
            child = subprocess.check_output([sys.executable, "-c", "import ray; print(ray.__name__)"], text=True)
            return uses_ray.pid == os.getpid(), uses_ray.RayError is ray.exceptions.RayError, child.strip()

        ray.init(num_cpus=1)
        print(ray.get(task.remote()))
        """,
        str(tmp_path),
        folder=tmp_path,
    )
    assert out.strip() == "(False, True, 'runtime')"


def test_install_inside_a_program(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import runtime.compat.ray
            runtime.compat.ray.install()
            runtime.compat.ray.install()
            import ray
            ray.init(num_cpus=1)
            print(ray.get(ray.put(ray.__version__)))
            """
        )
    )
    assert run("program.py", cwd=tmp_path) == "2.60.0\n"


def test_annotations_of_a_program_are_what_it_says(tmp_path: pathlib.Path) -> None:
    """They are strings only for a program that asks for that."""
    program = "def f(x: int): pass\nprint(f.__annotations__)"
    assert run_with_alias(program, folder=tmp_path) == "{'x': <class 'int'>}\n"
    assert run("-m", "runtime.compat.ray", "-c", program, cwd=tmp_path) == "{'x': <class 'int'>}\n"


def test_modules_and_commands(tmp_path: pathlib.Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text(
        "import sys, ray\nfrom . import other\nprint(__name__, __package__, sys.argv[1:], other.ray is ray)\n"
    )
    (tmp_path / "package" / "other.py").write_text("import ray\n")
    assert (
        run("-m", "runtime.compat.ray", "-m", "package", "x", cwd=tmp_path) == "__main__ package ['x'] True\n"
    )
    command = "import ray, sys; print(ray.__name__, sys.argv)"
    assert run("-m", "runtime.compat.ray", "-c", command, "x", cwd=tmp_path) == "runtime ['-c', 'x']\n"


def test_an_installed_ray_is_hidden_and_an_imported_one_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("real = True\n")
    out = run_with_alias("import ray\nprint(hasattr(ray, 'real'), hasattr(ray, 'put'))\n", folder=tmp_path)
    assert out == "False True\n"
    late = "import ray, runtime.compat.ray; runtime.compat.ray.install()"
    assert "imported already" in run("-c", late, cwd=tmp_path, check=False)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("import ray.workflow", "No module named 'ray.workflow'"),
        ("from ray import workflow", "'workflow' is not part of this engine"),
        ("import ray.nothing.at_all", "No module named 'ray.nothing"),
        ("from ray.util import nothing", "nothing"),
    ],
)
def test_what_is_missing_is_an_import_error(statement: str, words: str, tmp_path: pathlib.Path) -> None:
    program = f"try:\n    {statement}\nexcept ImportError as error:\n    print(error)\n"
    assert words in run_with_alias(program, folder=tmp_path)


def test_names_that_programs_take_from_internals(tmp_path: pathlib.Path) -> None:
    out = run_with_alias(
        """
        import ray
        from ray._raylet import ObjectRef, JobID
        from ray._private.services import get_node_ip_address
        from ray._private.test_utils import SignalActor, wait_for_condition
        import ray._common.test_utils as more

        import ray.cloudpickle
        print(ObjectRef is ray.ObjectRef, JobID is ray.JobID, more.SignalActor is SignalActor)
        """,
        folder=tmp_path,
    )
    assert out == "True True True\n"


def test_the_worker_object_of_this_process(tmp_path: pathlib.Path) -> None:
    out = run_with_alias(
        """
        import ray
        from ray._private.worker import global_worker

        print(global_worker.connected, global_worker.mode, global_worker.current_job_id.is_nil())

        @ray.remote
        def look():
            worker = ray._private.worker.global_worker
            assert worker.node.unique_id == ray.get_runtime_context().get_node_id()
            return worker.mode, worker.current_task_id.hex() == ray.get_runtime_context().get_task_id()

        ray.init(num_cpus=1)
        global_worker.check_connected()
        node = global_worker.node
        assert node.address_info["session_dir"] == node.get_session_dir_path()
        assert node.unique_id == ray.nodes()[0]["NodeID"]
        print(global_worker.mode == ray.SCRIPT_MODE, global_worker.current_job_id, ray.get(look.remote()))
        """,
        folder=tmp_path,
    )
    assert out.splitlines() == ["False None True", "True JobID(01000000) (1, True)"]


def test_what_programs_take_from_private_modules(tmp_path: pathlib.Path) -> None:
    out = run_with_alias(
        """
        import ray
        from ray._private import ray_constants
        from ray._private.state import actors, available_resources_per_node, jobs, total_resources_per_node
        from ray._private.test_utils import client_test_enabled, put_object
        from ray._private.utils import get_num_cpus, hex_to_binary
        from ray._common.constants import HEAD_NODE_RESOURCE_NAME
        from ray._common.network_utils import build_address, find_free_port, parse_address
        from ray._common.utils import get_or_create_event_loop, import_attr
        from ray.experimental.queue import Queue
        from ray.experimental.state.api import list_actors
        from ray.util.helpers import as_completed

        ray.init(num_cpus=2, resources={"x": 1})

        @ray.remote
        class Actor:
            def ping(self):
                return 1

        actor = Actor.options(name="named").remote()
        ray.get(actor.ping.remote())
        (row,) = actors().values()
        print(list_actors is ray.util.state.list_actors, Queue is ray.util.queue.Queue)
        print(row["Name"], row["State"], actors(actor._actor_id.hex()) == row, actors("00"), len(jobs()))
        (total,) = ray._private.state.total_resources_per_node().values()
        (available,) = available_resources_per_node().values()
        print(total["CPU"], available["x"], total[HEAD_NODE_RESOURCE_NAME])
        print(ray.get([put_object(1, True), put_object(2, False)]), client_test_enabled(), get_num_cpus() > 0)
        print(parse_address(build_address("::1", 5)), parse_address("no port"), 0 < find_free_port() < 65536)
        print(hex_to_binary("ff"), import_attr("os.path.join")("a", "b"), get_or_create_event_loop().is_running())
        print(list(as_completed([ray.put(3)])), ray_constants.OBJECT_STORE_MINIMUM_MEMORY_BYTES)
        """,
        folder=tmp_path,
    )
    assert out.splitlines() == [
        "True True",
        "named ALIVE True {} 1",
        "2.0 1.0 1.0",
        "[1, 2] False True",
        "('::1', '5') None True",
        "b'\\xff' a/b False",
        "[3] 78643200",
    ]


def test_the_logger_of_the_name_is_the_engines(tmp_path: pathlib.Path) -> None:
    out = run_with_alias(
        """
        import logging
        import ray

        class Prints(logging.Handler):
            def emit(self, record):
                print(record.getMessage())

        logging.getLogger("ray").addHandler(Prints())
        ray.init(num_cpus=1)
        print(logging.getLogger("ray").level == logging.INFO, logging.getLogger("ray.mine").parent.name)
        ray.shutdown()
        ray.init(num_cpus=1, logging_level="ERROR")
        print(logging.getLogger("ray").level == logging.ERROR)
        """,
        folder=tmp_path,
    )
    assert out.splitlines() == ["Started a local Ray instance.", "True runtime", "True"]


def test_libraries_that_are_not_here_say_so(tmp_path: pathlib.Path) -> None:
    out = run_with_alias(
        """
        for name in ("workflow", "util.sgd", "util.horovod", "util.tracing"):
            try:
                __import__(f"ray.{name}")
            except ImportError as error:
                print("core API, Ray Data, Train, Tune, Serve and RLlib only" in str(error))
        """,
        folder=tmp_path,
    )
    assert out.splitlines() == ["True"] * 4
