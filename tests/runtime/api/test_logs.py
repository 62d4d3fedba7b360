"""What workers print reaches the driver, with a prefix; duplicates are folded."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap

import pytest

from tests.under_test import NAME, OWN


def run(program: str, *patterns: str, options: str = "num_cpus=2", **variables: str) -> str:
    """Runs a driver until its output has every pattern, for lines travel behind results; then lets it end."""
    start = f"import {NAME} as ray, sys, os\nray.init({options})\n"
    stay = "\nprint('done', flush=True)\nsys.stdin.read()\n"
    with subprocess.Popen(
        [sys.executable, "-c", start + textwrap.dedent(program) + stay],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **variables},
    ) as driver:
        assert driver.stdout is not None
        output = ""
        for line in driver.stdout:  # ends with the driver; the test's own time limit bounds it
            output += re.sub(r"\x1b\[[0-9;]*m", "", line)
            if all(re.search(pattern, output, re.M) for pattern in ("^done$", *patterns)):
                break
        output += driver.communicate()[0]
    assert driver.returncode == 0, output
    return output


def test_prints_of_tasks_have_name_and_pid() -> None:
    output = run(
        """
        @ray.remote
        def speak():
            print("line one")
            print("to stderr", file=sys.stderr)
            return os.getpid()
        print("pid", ray.get(speak.remote()))
        """,
        "line one",
        "to stderr",
    )
    pid = re.search(r"^pid (\d+)$", output, re.M)
    assert pid is not None
    assert re.search(rf"\(speak pid={pid[1]}\).* line one", output)
    assert re.search(rf"\(speak pid={pid[1]}\).* to stderr", output)


def test_part_of_a_line_is_shown_while_its_task_goes_on() -> None:
    output = run(
        """
        import time
        @ray.remote
        def speak():
            print("half a line", end="", flush=True)
            time.sleep(3600)
        ref = speak.remote()
        """,
        "half a line",
    )
    assert re.search(r"\(speak pid=\d+\).* half a line", output)


def test_prints_of_actors_have_the_class() -> None:
    output = run(
        """
        @ray.remote
        class Speaker:
            def speak(self):
                print("from the actor")
        ray.get(Speaker.remote().speak.remote())
        """,
        "from the actor",
    )
    assert re.search(r"\(Speaker pid=\d+\).* from the actor", output)


def test_equal_lines_of_many_workers_are_folded() -> None:
    later = """
        import time
        time.sleep(3)
        ray.get(speakers[0].speak.remote("another line"))
    """
    output = run(
        f"""
        @ray.remote(num_cpus=0)
        class Speaker:
            def speak(self, line):
                print(line)
        speakers = [Speaker.remote() for _ in range(4)]
        ray.get([speaker.speak.remote("the same line") for speaker in speakers])
        {"" if OWN else later}
        """,  # Ray counts the repeats when the next line comes
        "the same line.*repeated",
        RAY_DEDUP_LOGS_AGG_WINDOW_S="2",
    )
    assert len([line for line in output.splitlines() if "the same line" in line]) <= 3


def test_log_to_driver_can_be_switched_off() -> None:
    output = run(
        """
        @ray.remote
        def speak():
            print("nobody hears this")
        ray.get(speak.remote())
        """,
        options="num_cpus=1, log_to_driver=False",
    )
    assert "nobody hears this" not in output


def test_an_error_that_nobody_looked_at_is_logged_once_and_one_that_was_read_is_not() -> None:
    output = run(
        """
        @ray.remote
        def fail(what):
            raise ValueError(what)
        ref = fail.remote("this was read")
        try:
            ray.get(ref)
        except ValueError:
            pass
        del ref
        fail.remote("nobody looked")
        """,
        "ValueError: nobody looked",
    )
    assert len(re.findall("Unhandled error", output)) == 1
    assert "this was read" not in output


def test_unhandled_errors_can_be_ignored() -> None:
    output = run(
        """
        os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"
        ray.shutdown()
        ray.init(num_cpus=1)
        @ray.remote
        def fail():
            raise ValueError("nobody looked")
        ready, _ = ray.wait([fail.remote()])
        del ready
        @ray.remote
        def speak():
            print("the last words")
        ray.get(speak.remote())
        """,
        "the last words",
    )
    assert "nobody looked" not in output


def run_to_end(program: str, options: str = "num_cpus=2") -> str:
    """What a driver prints that does not wait for anything at its end."""
    start = f"import {NAME} as ray, sys, os, logging\nray.init({options})\n"
    ended = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=True,
    )
    return re.sub(r"\x1b\[[0-9;]*m", "", ended.stdout)


def test_what_was_printed_just_before_the_end_is_not_lost() -> None:
    output = run_to_end(
        """
        @ray.remote
        def speak(number):
            print("whole line of", "abcd"[number])
            print("no end of line", "abcd"[number], end="")
        @ray.remote
        class Speaker:
            def speak(self):
                print("from the actor")
        ray.get([speak.remote(number) for number in range(4)])
        speaker = Speaker.remote()
        ray.get(speaker.speak.remote())
        """
    )
    for letter in "abcd":
        assert f"whole line of {letter}" in output
        assert f"no end of line {letter}" in output
    assert "from the actor" in output


LOGGING_PROGRAM = """
    @ray.remote
    def work():
        logging.getLogger("mine").info("from the task", extra={"batch": 7})
        return ray.get_runtime_context().get_task_id()
    @ray.remote
    class Actor:
        def work(self):
            try:
                1 / 0
            except ZeroDivisionError:
                logging.getLogger("mine").exception("from the actor")
    print("task id", ray.get(work.remote()))
    actor = Actor.options(name="named").remote()
    ray.get(actor.work.remote())
    logging.getLogger("mine").info("from the driver")
    logging.getLogger("mine").debug("not to be seen")
"""


def test_logs_in_json_say_who_wrote_them() -> None:
    output = run_to_end(
        LOGGING_PROGRAM,
        "num_cpus=2, logging_config=ray.LoggingConfig('JSON', additional_log_standard_attrs=['name'])",
    )
    lines = [json.loads(found) for found in re.findall(r"^\{.*\}$", output, re.M)]  # without a prefix
    by_message = {line["message"]: line for line in lines if line["name"] == "mine"}
    assert len(by_message) == 3, output
    assert by_message.keys() == {"from the task", "from the actor", "from the driver"}
    task, actor, driver = (by_message[f"from the {who}"] for who in ("task", "actor", "driver"))
    assert f"task id {task['task_id']}\n" in output
    assert (task["batch"], task["name"], task["task_name"]) == (7, "mine", "work")
    assert (actor["actor_name"], actor["levelname"]) == ("named", "ERROR")
    assert "ZeroDivisionError" in actor["exc_text"]
    assert "task_id" not in driver
    for line in by_message.values():
        assert {
            "asctime",
            "filename",
            "lineno",
            "process",
            "timestamp_ns",
            "job_id",
            "worker_id",
            "node_id",
        } <= set(line)


def test_logs_as_text_have_the_context_behind_the_message() -> None:
    output = run_to_end(LOGGING_PROGRAM, "num_cpus=2, logging_config=ray.LoggingConfig(log_level='ERROR')")
    assert "from the driver" not in output
    assert re.search(r"^\d.*ERROR .*:\d+ -- from the actor", output, re.M)  # without a prefix
    assert re.search(r" actor_name=named\b", output)
    assert re.search(r" task_id=[0-9a-f]+\b", output)


def test_what_workers_of_other_nodes_printed_is_not_lost_either() -> None:
    output = run_to_end(
        f"""
        ray.shutdown()
        from {NAME}.cluster_utils import Cluster
        cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=1))
        cluster.add_node(num_cpus=1, resources=dict(other=1))
        ray.init(address=cluster.address)
        @ray.remote(resources=dict(other=1))
        def speak():
            print("from the other node")
        ray.get(speak.remote())
        ray.shutdown()
        cluster.shutdown()
        """
    )
    assert "from the other node" in output


def test_tasks_that_no_node_can_run_are_explained() -> None:
    output = run(
        """
        @ray.remote(num_cpus=100)
        def large():
            pass
        @ray.remote
        def start():
            return [large.options(num_cpus=200).remote()]
        refs = [large.remote(), large.remote(), start.remote()]
        """,
        "CPU.*100",
        "CPU.*200",
    )
    assert re.search(r"\(autoscaler \+\d+s\).* No available node types can fulfill resource request", output)
    if not OWN:
        return
    why = "No available node types can fulfill resource request"
    assert re.search(
        rf"^\(autoscaler \+\d+s\) 2 __main__.large task\(s\) wait for {{CPU: 100}}: {why}$", output, re.M
    )
    assert re.search(
        rf"^\(autoscaler \+\d+s\) 1 __main__.large task\(s\) wait for {{CPU: 200}}: {why}$", output, re.M
    )


@pytest.mark.skipif(not OWN, reason="names of files and what is kept are the engine's own")
def test_nothing_is_lost_when_the_files_of_a_worker_are_rotated() -> None:
    output = run(
        """
        import glob, time
        from runtime.util.state import get_log

        @ray.remote
        class Talker:
            def talk(self, folder):
                count = 0
                end = time.monotonic() + 60
                while len(glob.glob(f"{folder}/worker-*-{os.getpid()}.out.*")) < 4 and time.monotonic() < end:
                    print("word", count)
                    count += 1
                    time.sleep(0.001)
                return count, os.getpid()

        from runtime._process.core_worker import current
        folder = current().session.session_dir + "/logs"
        talker = Talker.remote()
        count, pid = ray.get(talker.talk.remote(folder))
        where = {"node_id": ray.get_runtime_context().get_node_id(), "pid": pid}
        words = "".join(get_log(**where)).split("\\n")
        print("read", words == [f"word {number}" for number in range(count)] + [""])
        print("tail", "".join(get_log(tail=3, **where)).split("\\n") == words[-4:])
        print("count", count)
        """,
        r"^count \d+$",
        RAY_ROTATION_MAX_BYTES="1000",
        RAY_ROTATION_BACKUP_COUNT="100",
        RAY_DEDUP_LOGS="0",
    )
    assert "read True" in output
    assert "tail True" in output
    count = int(re.findall(r"^count (\d+)$", output, re.M)[0])
    assert [int(number) for number in re.findall(r"word (\d+)$", output, re.M)] == list(range(count))
