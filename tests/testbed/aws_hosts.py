"""AWS whose instances are real hosts: each boots at its private and public address, lets in the user of its image by
its key pair, and has a role's credentials only where it has an instance profile, from version two of the metadata
service."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.testbed.aws import ROLE_KEY, Aws, as_a_person
from tests.testbed.cloud_hosts import CloudHosts, Wanted, scripts_of
from tests.testbed.hosts import OPERATOR, Host

_METADATA = "169.254.169.254"
_TOKEN = "token-of-the-metadata-service"
_ROLES = "/latest/meta-data/iam/security-credentials/"
_USERS = {"debian": "admin", "ubuntu": "ubuntu", "Deep Learning": "ubuntu"}


class AwsCloud:
    """A context manager. Use it from `inside`.

    Attributes:
        aws: the service.
        hosts: the hosts of its instances.
    """

    def __init__(self) -> None:
        self._aws: Aws | None = None
        self.hosts = CloudHosts(self._wanted, on_shutdown=self._shut_down)
        self.hosts.join_network(_METADATA, 32)
        with self.hosts.inside():
            self._aws = Aws(OPERATOR)
            self._metadata = _Metadata((_METADATA, 80), self._role_at)
        self.reset()
        self._thread = threading.Thread(target=self._metadata.serve_forever, args=(0.05,), name="metadata")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def aws(self) -> Aws:
        assert self._aws is not None
        return self._aws

    def reset(self) -> None:
        """An empty account. The hosts of what was in it end."""
        with self.aws.locked():
            self.aws.reset()
            self.aws.world.instant = False

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """While it lasts, the calling thread is where the hosts and the API are, and may ask it."""
        with self.hosts.inside(), as_a_person():
            yield

    def host(self, instance_id: str) -> Host:
        """The host of a running instance."""
        found = self.hosts.host(instance_id)
        assert found is not None, f"{instance_id} does not run"
        return found

    def close(self) -> None:
        """Ends the API and all hosts."""
        self._metadata.shutdown()
        self._thread.join()
        self._metadata.server_close()
        aws, self._aws = self.aws, None
        aws.__exit__()
        self.hosts.close()

    # -- inside

    def _wanted(self) -> Mapping[str, Wanted]:
        """Asked again and again by the thread that makes hosts; moves instances on, where their hosts have got to."""
        if self._aws is None:
            return {}
        with self._aws.locked():
            return {one.id: wanted for one in self._instances() if (wanted := self._host_of(one)) is not None}

    def _shut_down(self, instance_id: str) -> None:
        with self.aws.locked():
            one = self.aws.ec2.get_instance(instance_id)
            if one.state == "running":
                ends = one.instance_initiated_shutdown_behavior == "terminate"
                self.aws.move(one, "shutting-down" if ends else "stopping")

    def _instances(self) -> Iterator[Any]:
        for one in self.aws.instances():
            there = self.hosts.host(one.id) is not None
            if one.state == "pending" and there:
                self.aws.move(one, "running")
            elif one.state == "stopping" and not there:
                self.aws.move(one, "stopped")
            elif one.state == "shutting-down" and not there:
                self.aws.move(one, "terminated")
            yield one

    def _host_of(self, instance: Any) -> Wanted | None:
        if instance.state in ("shutting-down", "terminated"):
            return None
        ec2 = self.aws.ec2
        image = ec2.amis[instance.image_id].name
        user = next(user for word, user in _USERS.items() if image.startswith(word))
        key = ec2.key_pairs[instance.key_name].public_key
        addresses = tuple(filter(None, (instance.private_ip, instance.public_ip)))
        scripts = scripts_of(instance.user_data.decode()) if instance.user_data else ()
        is_running = instance.state in ("pending", "running")
        return Wanted(addresses, {user: [key]}, is_running, scripts=scripts)

    def _role_at(self, address: str) -> str:
        """The role of the instance at an address; "" when it has none."""
        with self.aws.locked():
            ec2 = self.aws.ec2
            for one in self.aws.instances("running"):
                association = ec2.iam_instance_profile_associations.get(one.id)
                if one.private_ip == address and association is not None:
                    return str(association.iam_instance_profile.roles[0].name)
        return ""


class _Metadata(ThreadingHTTPServer):
    """The metadata service of all instances, which tells them apart by where they call from."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], role_at: Callable[[str], str]) -> None:
        self.role_at = role_at
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Metadata

    def do_PUT(self) -> None:
        self._send(200 if self.path == "/latest/api/token" else 404, _TOKEN)

    def do_GET(self) -> None:
        role = self.server.role_at(self.client_address[0])
        if self.headers.get("X-aws-ec2-metadata-token") != _TOKEN:
            self._send(401, "")  # version one
        elif role and self.path == _ROLES:
            self._send(200, role)
        elif role and self.path == f"{_ROLES}{role}":
            credentials = {
                "Code": "Success",
                "Type": "AWS-HMAC",
                "AccessKeyId": ROLE_KEY + role.encode().hex().upper(),
                "SecretAccessKey": "secret",
                "Token": "session",
                "LastUpdated": "2020-01-01T00:00:00Z",
                "Expiration": "2099-01-01T00:00:00Z",
            }
            self._send(200, json.dumps(credentials))
        else:
            self._send(404, "")

    def _send(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("X-aws-ec2-metadata-token-ttl-seconds", "21600")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass
