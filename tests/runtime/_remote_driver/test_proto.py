"""The published remote_driver.proto says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from runtime._remote_driver import link
from runtime._remote_driver.server import Server

PROTO = (Path(link.__file__).parent / "remote_driver.proto").read_text()
_CODE = re.sub(r"//.*", "", PROTO)


def test_the_service_and_its_methods_are_those_of_the_server() -> None:
    package = re.findall(r"^package ([\w.]+);", _CODE, re.M)
    service = re.findall(r"^service (\w+)", _CODE, re.M)
    assert [f"{package[0]}.{service[0]}"] == [link.SERVICE]
    published = {
        name: (bool(takes), bool(gives))
        for name, takes, gives in re.findall(
            r"rpc (\w+)\((stream )?Envelope\) returns \((stream )?Envelope\);", _CODE
        )
    }
    assert len(published) == _CODE.count("rpc ")

    class Details:
        def __init__(self, method: str) -> None:
            self.method = method

    handlers = Server(b"", "").handlers()
    served = {}
    for name in published:
        handler = handlers.service(Details(f"/{link.SERVICE}/{name}"))
        assert handler is not None, name
        served[name] = handler.request_streaming, handler.response_streaming
    assert served == published


def test_the_envelope_is_the_one_that_the_code_writes() -> None:
    [fields] = re.findall(r"message Envelope \{(.*?)\}", _CODE, re.S)
    assert fields.split() == "repeated bytes bodies = 1;".split()  # test_frames.py reads and writes this one


def test_the_metadata_is_that_of_the_code() -> None:
    named = set(re.findall(r"^//   ([\w-]+) ", PROTO, re.M))
    sent = set(re.findall(r'\("([\w-]+)", ', Path(link.__file__).read_text().partition("metadata = (")[2]))
    assert named == {"greeting-bin", "proof-bin", "session-bin", "resume"} == sent
