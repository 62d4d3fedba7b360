"""`runtime.job_submission`: programs that submit programs, to a real head."""

from __future__ import annotations

import asyncio
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from runtime.job_submission import JobStatus, JobSubmissionClient, JobType
from tests.clusterctl.cli import Cli
from tests.polling import eventually
from tests.processes import is_alive


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    cli = Cli(tmp_path_factory.mktemp("cli"))
    ran = cli.run("up", "-y", cli.spec("submits"))
    assert ran.status == 0, ran.err
    yield cli
    cli.run("down", "-y", "submits")


@pytest.fixture
def client(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> JobSubmissionClient:
    monkeypatch.setenv("CLUSTERCTL_HOME", cli.env()["CLUSTERCTL_HOME"])
    return JobSubmissionClient()


def ends(client: JobSubmissionClient, job: str, status: JobStatus = JobStatus.SUCCEEDED) -> bool:
    return eventually(lambda: client.get_job_status(job).is_terminal()) and (
        client.get_job_status(job) == status
    )


def test_a_job_from_submission_to_deletion(client: JobSubmissionClient, tmp_path: pathlib.Path) -> None:
    (tmp_path / "program.py").write_text(
        "import os, runtime\nruntime.init()\n"
        "print(runtime.get(runtime.remote(lambda: os.environ['GIVEN']).remote()))\n"
    )
    env = {"working_dir": str(tmp_path), "env_vars": {"GIVEN": "to the job"}}
    job = client.submit_job(entrypoint="python program.py", runtime_env=env, metadata={"team": "a"})
    assert ends(client, job), client.get_job_logs(job)
    assert client.get_job_logs(job) == "to the job\n"
    info = client.get_job_info(job)
    assert info.type == JobType.SUBMISSION
    assert info.submission_id == job
    assert info.entrypoint == "python program.py"
    assert info.metadata == {"team": "a"}
    assert info.message == "Job finished successfully."
    assert info.driver_exit_code == 0
    assert info.start_time <= info.end_time
    assert info.driver_info.id == info.job_id
    assert client.get_job_info(info.job_id).submission_id == job
    assert job in [one.submission_id for one in client.list_jobs()]
    assert client.delete_job(job) is True
    with pytest.raises(RuntimeError, match=rf"Request failed with status code 404: Job {job} does not exist"):
        client.get_job_info(job)


def test_metadata_are_strings(client: JobSubmissionClient) -> None:
    numbers: dict[str, Any] = {"team": 5}
    with pytest.raises(TypeError, match="metadata values must be strings, got <class 'int'>"):
        client.submit_job(entrypoint="true", metadata=numbers)


def test_failures_have_a_status_and_a_message(client: JobSubmissionClient) -> None:
    job = client.submit_job(entrypoint="echo said && exit 3", submission_id="fails")
    assert job == "fails"
    assert ends(client, job, JobStatus.FAILED)
    info = client.get_job_info(job)
    assert "failed with exit code 3" in info.message
    assert info.driver_exit_code == 3
    assert info.error_type == "JOB_ENTRYPOINT_COMMAND_ERROR"
    with pytest.raises(RuntimeError, match="Job with submission_id fails already exists"):
        client.submit_job(entrypoint="true", submission_id="fails")


def test_a_running_job_can_be_stopped_but_not_deleted(client: JobSubmissionClient) -> None:
    job = client.submit_job(entrypoint="echo begins; sleep 600")
    assert eventually(lambda: client.get_job_logs(job) == "begins\n")
    assert eventually(lambda: client.get_job_status(job) == "RUNNING")
    with pytest.raises(RuntimeError, match="non-terminal"):
        client.delete_job(job)
    assert client.stop_job(job) is True
    assert ends(client, job, JobStatus.STOPPED)
    assert client.get_job_info(job).message == "Job was intentionally stopped."
    assert client.stop_job(job) is False


def test_output_is_followed_to_the_end(client: JobSubmissionClient) -> None:
    async def follow(job: str) -> str:
        return "".join([text async for text in client.tail_job_logs(job)])

    job = client.submit_job(entrypoint="for i in 1 2 3; do echo line $i; sleep 0.1; done")
    assert asyncio.run(follow(job)) == "line 1\nline 2\nline 3\n"
    with pytest.raises(RuntimeError, match="does not exist"):
        asyncio.run(follow("nobody"))


def test_a_driver_of_the_cluster_needs_no_address(client: JobSubmissionClient) -> None:
    program = (
        "import ray; ray.init(); from ray.job_submission import JobSubmissionClient as C; c = C(); "
        "print(c.submit_job(entrypoint='echo from inside', submission_id='inner'))"
    )
    job = client.submit_job(entrypoint=f'python -m runtime.compat.ray -c "{program}"')
    assert ends(client, job), client.get_job_logs(job)
    *said, last = client.get_job_logs(job).splitlines()
    assert last == "inner"
    assert re.search(r"Connecting to existing Ray cluster at address: .*\.\.\.", said[0])
    assert said[1].endswith("Connected to Ray cluster.") or "Connected to Ray cluster. " in said[1]
    assert ends(client, "inner")
    assert client.get_job_logs("inner") == "from inside\n"


def test_who_submits_under_the_alias_gives_it_to_the_job(cli: Cli, client: JobSubmissionClient) -> None:
    script = cli.script(
        "from ray.job_submission import JobSubmissionClient as C\n"
        "print(C().submit_job(entrypoint='python -c \"import ray; print(ray.__name__)\"', submission_id='alias'))\n"
    )
    ran = cli.run("submit", "--ray-compat", script)
    assert ran.out == "alias\n", ran.err
    assert ends(client, "alias"), client.get_job_logs("alias")
    assert client.get_job_logs("alias") == "runtime\n"


def test_addresses(client: JobSubmissionClient, monkeypatch: pytest.MonkeyPatch) -> None:
    url = client.get_address()
    assert url.startswith("http://")
    local = url.replace("127.0.0.1", "localhost")
    for address in (url + "/", local, local.removeprefix("http://")):
        assert JobSubmissionClient(address).get_version() == client.get_version()
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", url)
    assert JobSubmissionClient("http://127.0.0.1:1").get_address() == url
    secret = pathlib.Path(os.environ["CLUSTERCTL_HOME"], "clusters", "submits", "secret").read_text()
    monkeypatch.setenv("CLUSTERCTL_HOME", "/nonexistent")
    monkeypatch.setenv("CLUSTERCTL_TMPDIR", "/nonexistent")
    with pytest.raises(RuntimeError, match=r"401.*RAY_AUTH_TOKEN"):
        JobSubmissionClient()
    monkeypatch.setenv("RAY_AUTH_TOKEN", secret)
    assert JobSubmissionClient().get_address() == url


def test_an_entrypoint_that_asks_for_something_ends_like_any_other(client: JobSubmissionClient) -> None:
    asks = {"entrypoint_num_cpus": 0.5, "entrypoint_memory": 1000}
    job = client.submit_job(
        entrypoint="echo $GIVEN; kill -TERM $$", runtime_env={"env_vars": {"GIVEN": "x"}}, **asks
    )
    assert ends(client, job, JobStatus.FAILED)
    assert client.get_job_logs(job) == "x\n"
    assert client.get_job_info(job).driver_exit_code == 143
    left = "(sleep 600 & echo $! ); echo done"
    job = client.submit_job(entrypoint=left, **asks)
    assert ends(client, job), client.get_job_logs(job)
    pid, word = client.get_job_logs(job).split()
    assert (word, is_alive(int(pid))) == ("done", False)
    bad = {"packages": ["no-such-package-env-test"], "pip_install_options": ["--no-index"]}
    missing = client.submit_job(entrypoint="true", runtime_env={"pip": bad}, **asks)
    assert ends(client, missing, JobStatus.FAILED)
    assert "No matching distribution" in client.get_job_logs(missing)


def test_an_entrypoint_that_waits_for_what_there_is_not_can_be_stopped(client: JobSubmissionClient) -> None:
    job = client.submit_job(entrypoint="true", entrypoint_resources={"unicorn": 1})
    assert eventually(lambda: "unicorn" in client.get_job_logs(job)), "it is told what it waits for"
    assert client.stop_job(job)
    assert ends(client, job, JobStatus.STOPPED)


def test_nobody_there(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("CLUSTERCTL_HOME", str(tmp_path))
    monkeypatch.setenv("CLUSTERCTL_TMPDIR", str(tmp_path))
    with pytest.raises(ConnectionError, match="Failed to connect to Ray"):
        JobSubmissionClient()
    with pytest.raises(ConnectionError, match="Failed to connect to Ray"):
        JobSubmissionClient("http://127.0.0.1:1")
    with pytest.raises(TypeError, match="address must be a string"):
        JobSubmissionClient(5)  # type: ignore[arg-type]


def test_what_a_head_cannot_give_is_refused(client: JobSubmissionClient) -> None:
    with pytest.raises(ValueError, match=r"Invalid type .* for `worker_process_setup_hook`"):
        client.submit_job(entrypoint="true", runtime_env={"worker_process_setup_hook": print})
