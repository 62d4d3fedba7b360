"""The client of the job API."""

from __future__ import annotations

import asyncio
import codecs
import copy
import http.client
import json
import logging
import secrets
import string
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast
from urllib.parse import quote, urlencode

import runtime
from runtime._core.head_api import with_secret
from runtime._packages.archive import PackageError
from runtime._packages.job_files import Upload, collect
from runtime.runtime_env import RuntimeEnv

from . import endpoint, records
from .records import JobDetails, JobStatus

log = logging.getLogger("runtime")
_TIMEOUT_S = 30.0
_UPLOAD_TIMEOUT_S = 120.0
_WAIT_FOR_OUTPUT_S = 10.0
_ID_LETTERS = string.ascii_letters + string.digits


class JobSubmissionClient:
    """Submits programs to a cluster and follows them.

    Args:
        address: see `endpoint.find`.
        create_cluster_if_needed: without effect: no call of this client starts a cluster.
        cookies: sent with every request.
        metadata: added to that of every job that this client submits.
        headers: sent with every request. The cluster's secret is also sent in `X-Ray-Authorization`, so an
            `Authorization` header given here is for proxies and does not replace it.
        verify: without effect, as the API speaks HTTP.

    Raises:
        TypeError: an argument has the wrong type.
        ConnectionError: the cluster does not exist or does not answer.
        RuntimeError: the head refuses this client.
    """

    def __init__(
        self,
        address: str | None = None,
        create_cluster_if_needed: bool = False,
        cookies: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
        verify: str | bool | None = True,
    ) -> None:
        for name, value, kind, words in (
            ("address", address, str, "string"),
            ("create_cluster_if_needed", create_cluster_if_needed, bool, "bool"),
            ("cookies", cookies, dict, "dict"),
            ("metadata", metadata, dict, "dict"),
            ("headers", headers, dict, "dict"),
            ("verify", verify, str | bool, "str or bool"),
        ):
            if value is not None and not isinstance(value, cast(type, kind)):
                raise TypeError(f"{name} must be a {words}, got {type(value)}")
        found = endpoint.find(address)
        self._address = found.url
        given: dict[str, str] = {}
        if cookies:
            given["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        self._headers = with_secret(found.secret, {**given, **(headers or {})})
        self._metadata = dict(metadata or {})
        self.get_version()

    def get_address(self) -> str:
        """The address of the API."""
        return self._address

    def get_version(self) -> str:
        """The version of the API."""
        return str(self._json("GET", "/api/version")["api_version"])

    def submit_job(
        self,
        *,
        entrypoint: str,
        job_id: str | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        submission_id: str | None = None,
        entrypoint_num_cpus: float | None = None,
        entrypoint_num_gpus: float | None = None,
        entrypoint_memory: int | None = None,
        entrypoint_resources: dict[str, float] | None = None,
        entrypoint_label_selector: dict[str, str] | None = None,
    ) -> str:
        """Submits a job and returns at once.

        Args:
            entrypoint: a shell command. It runs in a copy of the environment's `working_dir`: on the head, unless it
                requests resources. If this program can `import ray` (see `runtime.compat.ray`), so can the job.
            job_id: deprecated name of `submission_id`.
            runtime_env: environment of the job; local files are uploaded.
            metadata: strings by name, kept with the job.
            submission_id: default: a random one.
            entrypoint_num_cpus, entrypoint_num_gpus, entrypoint_memory, entrypoint_resources,
                entrypoint_label_selector: requests of the command itself. With any of them, the command waits for a
                node that fits and runs there.

        Returns:
            The submission id.

        Raises:
            RuntimeError: the head refuses the job, or a job with this id exists.
            TypeError: a value of `metadata` is no string.
            ValueError: `runtime_env` is wrong.
        """
        for value in (metadata or {}).values():
            if not isinstance(value, str):
                raise TypeError(f"metadata values must be strings, got {type(value)}")
        request = {
            "entrypoint": entrypoint,
            "submission_id": submission_id or job_id or new_submission_id(),
            "runtime_env": self._upload_files(copy.deepcopy(dict(runtime_env or {}))),
            "metadata": {**self._metadata, **(metadata or {})},
            "ray_compat": sys.modules.get("ray") is runtime,
            "entrypoint_num_cpus": entrypoint_num_cpus,
            "entrypoint_num_gpus": entrypoint_num_gpus,
            "entrypoint_memory": entrypoint_memory,
            "entrypoint_resources": entrypoint_resources,
            "entrypoint_label_selector": entrypoint_label_selector,
        }
        return str(self._json("POST", "/api/jobs/", request)["submission_id"])

    def stop_job(self, job_id: str) -> bool:
        """Ends a job and all its processes. Returns False if it had already ended.

        Raises:
            RuntimeError: the job does not exist.
        """
        return bool(self._json("POST", f"/api/jobs/{quote(job_id)}/stop")["stopped"])

    def delete_job(self, job_id: str) -> bool:
        """Deletes the record and the output of a job that has ended.

        Raises:
            RuntimeError: the job does not exist, or has not ended.
        """
        return bool(self._json("DELETE", f"/api/jobs/{quote(job_id)}")["deleted"])

    def get_job_info(self, job_id: str) -> JobDetails:
        """A job's details.

        Raises:
            RuntimeError: the job does not exist.
        """
        return records.details(self._json("GET", f"/api/jobs/{quote(job_id)}"))

    def list_jobs(self) -> list[JobDetails]:
        """All jobs: submitted ones, and programs that connected by themselves."""
        return [records.details(job) for job in self._json("GET", "/api/jobs/")]

    def get_job_status(self, job_id: str) -> JobStatus:
        """A job's status.

        Raises:
            RuntimeError: the job does not exist.
        """
        return self.get_job_info(job_id).status

    def get_job_logs(self, job_id: str) -> str:
        """The output of a job so far.

        Raises:
            RuntimeError: the job does not exist.
        """
        return str(self._json("GET", f"/api/jobs/{quote(job_id)}/logs")["logs"])

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        """Yields the output of a job until it ends.

        Raises:
            RuntimeError: the job does not exist.
        """
        offset = 0
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            query = urlencode({"offset": offset, "wait_s": _WAIT_FOR_OUTPUT_S})
            path = f"/api/jobs/{quote(job_id)}/logs?{query}"
            data, headers = await asyncio.to_thread(self._request, "GET", path)
            ended = headers["X-Job-Ended"] == "1"
            text = decoder.decode(data, ended)
            if text:
                yield text
            if ended:
                return
            offset = int(headers["X-Next-Offset"])

    # ------------------------------------------------------------ inside

    def _upload_files(self, env: dict[str, Any]) -> dict[str, Any]:
        """Uploads local files; returns the environment with URIs in their place."""
        hook = env.get("worker_process_setup_hook")
        if hook is not None and not isinstance(hook, str):
            raise ValueError(
                f"Invalid type {type(hook)} for `worker_process_setup_hook`: a submitted job takes a string, the path "
                "of the function. Give a function to `init` in the job's own program."
            )
        try:
            ready, uploads = collect(RuntimeEnv(**env))
        except PackageError as error:
            raise ValueError(f"{error.message}. {error.hint}") from error
        for upload in uploads:
            self._upload(upload)
        return ready

    def _upload(self, upload: Upload) -> None:
        path = f"/api/packages/gcs/{upload.key}"
        try:
            self._request("GET", path)
        except _NotFound:
            self._request("PUT", path, upload.data, _UPLOAD_TIMEOUT_S)

    def _json(self, method: str, path: str, value: object = None) -> Any:
        body = None if method == "GET" else json.dumps(value).encode()
        data, _ = self._request(method, path, body)
        return json.loads(data)

    def _request(
        self, method: str, path: str, body: bytes | None = None, timeout_s: float = _TIMEOUT_S
    ) -> tuple[bytes, Mapping[str, str]]:
        request = urllib.request.Request(self._address + path, body, self._headers, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                return answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            kind = _NotFound if error.code == 404 else RuntimeError
            raise kind(f"Request failed with status code {error.code}: {_words(error)}.") from None
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionError(f"Failed to connect to Ray at address: {self._address}. {error}") from error


class _NotFound(RuntimeError):
    """The head does not know the requested job or package."""


def _words(error: urllib.error.HTTPError) -> str:
    data = error.read().decode(errors="replace")
    try:
        said = str(json.loads(data)["error"])
    except (ValueError, KeyError, TypeError):
        said = data
    if error.code == 401:
        said += ": set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH to a file that holds it"
    return said


def new_submission_id() -> str:
    """A random submission id in Ray's form."""
    return "raysubmit_" + "".join(secrets.choice(_ID_LETTERS) for _ in range(16))
