"""Notice that a cloud is about to take a machine back, as the machine itself reads it: clouds tell it by an HTTP server
that each machine sees as its own. Imports little, and no SDK."""

from __future__ import annotations

import time
from datetime import datetime

import msgspec

_ANSWER_S = 90.0
"""Longer than any server keeps a question."""
_AGAIN_S = 5.0


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the machines of a cloud read it. Travels to them as JSON.

    Attributes:
        server: HOST or HOST:PORT.
        path: of the question. `{version}` is that of the last answer (its ETag), for servers that answer on a change.
        headers: of the question.
        token: path of a token that is had by a PUT, and the headers of that and of the question; None: none is needed.
        says: the answer that is the notice; "": each is, and until then there is none (404).
        means: what it means, to be shown.
        leaves_s: how long the machine stays after the notice.
        time: the field of a JSON answer with the time at which it goes, in ISO 8601; "": the answer does not tell.
    """

    server: str
    path: str
    headers: dict[str, str] = {}
    token: tuple[str, dict[str, str], str] | None = None
    says: str = ""
    means: str
    leaves_s: float
    time: str = ""


def wait(source: Source, again_s: float = _AGAIN_S) -> float:
    """Returns when this machine is given notice. A server that does not answer is asked again.

    Args:
        again_s: pause between two questions, unless the server has waited for a change or told one.

    Returns:
        When the machine goes, in Unix time.
    """
    version = "0"
    while True:
        asked_s, before = time.monotonic(), version
        try:
            notice, version = _ask(source, version)
        except OSError:  # no server, or it is not ready yet
            notice = None
        if notice is not None:
            return goes_at(source, notice, time.time())
        if version == before and time.monotonic() - asked_s < again_s:
            time.sleep(again_s)


def goes_at(source: Source, notice: str, now: float) -> float:
    """When the machine goes, in Unix time.

    Args:
        notice: the answer.
        now: Unix time.
    """
    if source.time:
        try:
            told = msgspec.json.decode(notice, type=dict[str, str])[source.time]
            return datetime.fromisoformat(told).timestamp()
        except (msgspec.MsgspecError, KeyError, ValueError):
            pass  # an answer of another form is a notice, too
    return now + source.leaves_s


def _ask(source: Source, version: str) -> tuple[str | None, str]:
    """The notice, if it was given, and the answer's version.

    Raises:
        OSError: there was no answer.
    """
    from http.client import HTTPConnection, HTTPException  # few machines need it

    connection = HTTPConnection(source.server, timeout=_ANSWER_S)
    try:
        headers = dict(source.headers)
        if source.token is not None:
            path, given, name = source.token
            connection.request("PUT", path, headers=given)
            headers[name] = connection.getresponse().read().decode()
        connection.request("GET", source.path.format(version=version), headers=headers)
        response = connection.getresponse()
        text = response.read().decode(errors="replace").strip()
        is_given = response.status == 200 and source.says in ("", text)
        return text if is_given else None, response.headers.get("ETag") or version
    except (HTTPException, ValueError) as error:  # no HTTP, or no token
        raise OSError(str(error)) from error
    finally:
        connection.close()
