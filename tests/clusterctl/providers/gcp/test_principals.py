"""Who Google's credentials belong to, by the SDK's own kinds of credentials."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import RefreshError
from google.oauth2 import service_account
from google.oauth2.credentials import Credentials

from clusterctl.providers.gcp import api as apis
from clusterctl.providers.gcp import principals
from clusterctl.providers.gcp.provider import GcpMachines
from tests.clusterctl.providers.gcp.cluster import create


class Person(AnonymousCredentials):
    """Credentials that tell whose they are, and that the pretended platform takes."""

    def __init__(self, email: str) -> None:
        super().__init__()
        self.service_account_email = email


@pytest.fixture
def token_server() -> Iterator[tuple[str, dict[str, str]]]:
    """The URL where tokens are to be had, and what is answered beside the token."""
    more: dict[str, str] = {}

    class Tokens(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status = 400 if "error" in more else 200
            body = json.dumps({"access_token": "t", "expires_in": 3600, **more}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Tokens) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", more
        server.shutdown()
        thread.join()


def user(url: str) -> Credentials:
    return Credentials(
        "t", refresh_token="r", token_uri=url, client_id="i", client_secret="s", scopes=["compute"]
    )


def test_a_service_accounts_key_names_it() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    info = {"client_email": "ci@p.iam.gserviceaccount.com", "token_uri": "x", "private_key": key.decode()}
    found = service_account.Credentials.from_service_account_info(info)
    assert principals.of_credentials(found) == "ci@p.iam.gserviceaccount.com"


def test_a_user_is_known_by_the_identity_that_comes_with_a_token(
    token_server: tuple[str, dict[str, str]],
) -> None:
    url, more = token_server
    body = base64.urlsafe_b64encode(json.dumps({"email": "ann@example.com"}).encode()).decode().rstrip("=")
    more["id_token"] = f"head.{body}.signature"
    assert principals.of_credentials(user(url)) == "ann@example.com"
    more["id_token"] = "none"
    assert principals.of_credentials(user(url)) == ""
    more["error"] = "invalid_grant"
    with pytest.raises(RefreshError):
        principals.of_credentials(user(url))


def test_credentials_that_do_not_tell() -> None:
    assert principals.of_credentials(AnonymousCredentials()) == ""


def test_people_do_not_meet_and_are_the_same_on_a_new_machine(
    make: Callable[..., GcpMachines], tmp_path: Path
) -> None:
    def as_(email: str, home: str, cluster_id: str = "c-1") -> GcpMachines:
        apis.of.cache_clear()
        folder = tmp_path / home
        found = make(cluster_id, owner_file=str(folder / "owner"), folder=str(folder))
        found._api._found = (Person(email), "")
        return found

    ann = as_("ann@example.com", "same")
    ann.prepare([])
    assert create(ann, "a").errors == ()
    (machine,) = ann.list()
    bob = as_("bob@example.com", "same")
    assert bob.clusters("c") == []
    assert bob.list() == []
    (foreign,) = bob.foreign("c")
    assert (foreign.cluster_id, str(foreign.owner)) == ("c-1", "ann@example.com")
    elsewhere = as_("ann@example.com", "new laptop", "c")
    assert elsewhere.clusters("c") == ["c-1"]
    assert elsewhere.foreign("c") == []
    assert as_("ann@example.com", "new laptop").terminate([machine.id]) == {machine.id: None}
