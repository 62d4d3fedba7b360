"""AWS on this machine: moto behind an HTTP server of ours, which adds what moto leaves out and what goes wrong.

Added: refusals by EC2's own rules (`aws_rules`), states that take time, the client's token, capacity by type, zone and
market, groups that are in use, public parameters of images, quotas, prices, roles that may do only what their policies
say, listings that lag behind. Whoever asks uses boto3 as it is, with `endpoint_url`. `aws_hosts` makes real hosts of
the instances.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl

os.environ |= {  # before moto is imported, which reads them then
    "MOTO_ENABLE_AMI_VALIDATION": "true",
    "MOTO_ENABLE_KEYPAIR_VALIDATION": "true",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",  # hundreds, and not those that we need
}

import botocore.session
import pytest
from moto.core.base_backend import BackendDict
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.iam.models import iam_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from tests.testbed import aws_rules

# The models of the services, 60,000 objects of EC2 alone, are read once and not for each session.
botocore.session.create_loader = functools.cache(botocore.session.create_loader)
REGION = "us-east-1"
ROLE_KEY = "ASIAROLE"
"""How the access keys of roles begin; the rest is the role's name in hexadecimal digits."""
_CODES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}
_IMAGES = {
    "debian-12-amd64-20260101-2000": (
        "136693071363",
        "x86_64",
        "/aws/service/debian/release/12/latest/amd64",
    ),
    "debian-12-arm64-20260101-2000": ("136693071363", "arm64", "/aws/service/debian/release/12/latest/arm64"),
    "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20260101": (
        "099720109477",
        "x86_64",
        "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
    ),
    "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20260101": (
        "898082745236",
        "x86_64",
        "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
    ),
}


@contextlib.contextmanager
def as_a_person() -> Iterator[None]:
    """While it lasts, this process and those that it starts have the keys of somebody who may do everything."""
    keys = {
        "AWS_ACCESS_KEY_ID": "AKIAPERSON",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            patch.delenv(name, raising=False)
        for name, value in keys.items():
            patch.setenv(name, value)
        yield


@dataclass
class Fault:
    """An answer that a call gets instead of being carried out.

    Attributes:
        action: as the API calls it, e.g. "RunInstances"; "": any.
        times: how often.
        after: it is carried out first, and only the answer is lost.
    """

    action: str
    code: str
    message: str = "made up by the test"
    status: int = 400
    times: int = 10**9
    after: bool = False
    when: Callable[[dict[str, str]], bool] = lambda parameters: True


@dataclass
class World:
    """What the test decides; the defaults are a world in which everything goes well."""

    faults: list[Fault] = field(default_factory=list)
    capacity: dict[tuple[str, str, str], int] = field(
        default_factory=dict
    )  # (type, zone, market) -> how many are left
    quotas: dict[str, float] = field(default_factory=dict)  # code -> virtual CPUs
    prices: dict[str, float] = field(default_factory=dict)  # type -> per hour; not in it: may not be asked
    spot_price: float = 0.0
    listing_lag_s: float = 0.0
    page_size: int = 100  # launches on a page of the listing
    profile_lag_s: float = 0.0
    instant: bool = True  # states change at once; else somebody moves them on
    decoded: dict[str, dict[str, str]] = field(default_factory=dict)  # encoded message -> action and resource


class Aws:
    """The service, in this process. A context manager.

    Attributes:
        calls: how often each action was called.
        asked_by_people: of these those that are not of a machine's role.
        world: to be changed at will.
    """

    def __init__(self, address: str = "127.0.0.1") -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.world = World()
        self.calls: Counter[str] = Counter()
        self.asked_by_people: Counter[str] = Counter()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.RLock()
        self._tokens: dict[str, tuple[str, Any]] = {}
        self._launched: dict[str, float] = {}
        self._profiles: dict[str, float] = {}
        self.reset()
        self._server = make_server(address, 0, self, threaded=True, request_handler=MotoRequestHandler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="aws", daemon=True
        )
        self._thread.start()
        self.url = f"http://{address}:{self._server.server_port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        BackendDict.reset()

    def reset(self) -> None:
        """An account in which nothing is, but its default network and the public images."""
        with self._lock:
            BackendDict.reset()
            self.world = World()
            self.calls.clear()
            self.asked_by_people.clear()
            self._tokens.clear()
            self._warned: set[str] = set()
            self._parameters: dict[str, str] = {}
            backend = self.ec2
            for name, (owner, architecture, parameter) in _IMAGES.items():
                image_id = f"ami-{hashlib.sha256(name.encode()).hexdigest()[:17]}"
                backend.amis[image_id] = Ami(
                    backend,
                    image_id,
                    name=name,
                    owner_id=owner,
                    public=True,
                    virtualization_type="hvm",
                    architecture=architecture,
                    root_device_type="ebs",
                    root_device_name="/dev/xvda",
                    region_name=f"{REGION}a",
                )
                self._parameters[parameter] = image_id

    def forget_tokens(self) -> None:
        """As if more than a day had passed since the last launch."""
        with self._lock:
            self._tokens.clear()

    @property
    def ec2(self) -> Any:
        """moto's own picture of EC2."""
        return ec2_backends[DEFAULT_ACCOUNT_ID][REGION]

    @property
    def iam(self) -> Any:
        """moto's own picture of IAM."""
        return iam_backends[DEFAULT_ACCOUNT_ID]["aws"]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else looks or changes anything meanwhile."""
        with self._lock:
            yield

    def instances(self, *states: str) -> list[Any]:
        """moto's instances in these states, all but ended ones by default."""
        wanted = states or tuple(_CODES.keys() - {"terminated"})
        return [one for one in self.ec2.all_instances() if one.state in wanted]

    def leftovers(self) -> list[str]:
        """What a cluster may have left behind: everything that a new account does not have."""
        ec2, iam = self.ec2, self.iam
        out = [f"{one.id} {one.state}" for one in self.instances()]
        out += [
            group.name
            for groups in ec2.groups.values()
            for group in groups.values()
            if group.name != "default"
        ]
        out += [*ec2.key_pairs]
        out += [id for id, vpc in ec2.vpcs.items() if not vpc.is_default]
        out += [role.name for role in iam.roles.values() if not role.path.startswith("/aws-service-role/")]
        out += [profile.name for profile in iam.instance_profiles.values()]
        return out

    def interrupt(self, instance_id: str) -> None:
        """Takes a spot machine back."""
        with self._lock:
            instance = self.ec2.get_instance(instance_id)
            assert instance.lifecycle == "spot"
            instance.state_reason.code = "Server.SpotInstanceTermination"
            self.move(instance, "terminated" if self.world.instant else "shutting-down")

    def warn(self, instance_id: str) -> None:
        """Gives a spot machine notice that it will be taken back."""
        with self._lock:
            assert self.ec2.get_instance(instance_id).lifecycle == "spot"
            self._warned.add(instance_id)

    def move(self, instance: Any, state: str) -> None:
        """Puts an instance into a state."""
        with self._lock:
            instance._state.name, instance._state.code = state, _CODES[state]

    # ------------------------------------------------------------ WSGI

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        request = _Request(environ, body)
        if request.service == "":
            start_response("404 Not Found", [])
            return [b""]
        self.calls[request.action] += 1
        self.asked_by_people[request.action] += not request.access_key.startswith(ROLE_KEY)
        with self._lock:
            answer = self._refused(request, after=False) or self._answered(request)
            answer = self._refused(request, after=True) or answer
        status, headers, content = answer
        start_response(status, headers)
        return [content]

    def _refused(self, request: _Request, after: bool) -> _Answer | None:
        if not after and (denied := self._denied(request) or self._against_the_rules(request)):
            return denied
        for fault in self.world.faults:
            fits = fault.action in ("", request.action) and fault.after == after and fault.times > 0
            if fits and fault.when(request.parameters):
                fault.times -= 1
                return request.error(fault.code, fault.message, fault.status)
        return None

    def _denied(self, request: _Request) -> _Answer | None:
        """A role may do what its policies say; whoever has keys of a person may do everything."""
        if not request.access_key.startswith(ROLE_KEY):
            return None
        name = bytes.fromhex(request.access_key.removeprefix(ROLE_KEY).lower()).decode()
        wanted = f"{request.service}:{request.action}"
        role = next((one for one in self.iam.roles.values() if one.name == name), None)
        documents = [json.loads(text) for text in role.policies.values()] if role else []
        allowed = [
            action for one in documents for statement in one["Statement"] for action in _listed(statement)
        ]
        if wanted in allowed or wanted == "sts:GetCallerIdentity":
            return None
        return request.error("UnauthorizedOperation", f"role {name} may not {wanted}", 403)

    def _against_the_rules(self, request: _Request) -> _Answer | None:
        if request.service != "ec2":
            return None
        refusal = aws_rules.refused(request.action, request.parameters, self._template(request.parameters))
        return request.error(*refusal) if refusal else None

    def _template(self, given: dict[str, str]) -> dict[str, Any]:
        named = {
            key.removeprefix("LaunchTemplate."): value
            for key, value in given.items()
            if key.startswith("LaunchTemplate.")
        }
        try:
            return dict(self.ec2._get_template_from_args(named).data) if named else {}
        except EC2ClientError:  # there is none, which moto says
            return {}

    def _answered(self, request: _Request) -> _Answer:
        if (
            request.parameters.get("DryRun") == "true" and request.action != "RunInstances"
        ):  # moto would do some
            return request.error(
                "DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412
            )
        own = getattr(self, f"_do_{request.action}", None)
        return own(request) if own else self._forward(request)

    def _forward(self, request: _Request) -> _Answer:
        got: list[Any] = []
        parts = self._moto(
            request.environ_for_moto(), lambda status, headers, *_: got.extend((status, headers))
        )
        content = b"".join(parts)
        headers = [(key, value) for key, value in got[1] if key.lower() != "content-length"]
        return got[0], headers, content

    # ------------------------------------------------------------ what moto leaves out

    def _do_RunInstances(self, request: _Request) -> _Answer:
        given = request.parameters
        token = given.get("ClientToken", "")
        if token in self._tokens:
            body, earlier = self._tokens[token]
            if body != request.digest():
                words = (
                    "Arguments on this idempotent request are inconsistent with those of a previous request."
                )
                return request.error("IdempotentParameterMismatch", words)
            return earlier
        profile = given.get("IamInstanceProfile.Name", "")
        born = self._profiles.get(profile, 0.0)
        if profile and time.monotonic() < born + self.world.profile_lag_s:
            words = f"Value ({profile}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile"
            return request.error("InvalidParameterValue", words)
        market = given.get("InstanceMarketOptions.MarketType", "on-demand")
        zone = self._zone(given)
        place = (given.get("InstanceType", ""), zone, market)
        most = int(given["MaxCount"])
        count = min(most, self.world.capacity.get(place, most))
        if count < int(given["MinCount"]):
            words = (
                f"There is no sufficient {place[0]} capacity in the Availability Zone you requested ({zone})."
            )
            return request.error("InsufficientInstanceCapacity", words, 500)
        before = {one.id for one in self.ec2.all_instances()}
        answer = self._forward(request.with_parameter("MinCount", str(count)))
        if answer[0].startswith("200"):
            if place in self.world.capacity:
                self.world.capacity[place] -= count
            for instance in self.ec2.all_instances():
                if instance.id not in before:
                    self._launched[instance.id] = time.monotonic()
                    # moto knows only those beside interfaces, for the filter instance.group-id
                    instance.security_groups = [
                        group for nic in instance.nics.values() for group in nic.group_set
                    ]
                    if not self.world.instant:
                        self.move(instance, "pending")
            content = (
                answer[2]
                .replace(b"<code>16</code>", b"<code>0</code>")
                .replace(b"<name>running<", b"<name>pending<")
            )
            answer = (answer[0], answer[1], re.sub(rb"<ipAddress>.*?</ipAddress>", b"", content))
            if token:
                self._tokens[token] = (request.digest(), answer)
        return answer

    def _zone(self, given: dict[str, str]) -> str:
        subnet = given.get("SubnetId") or given.get("NetworkInterface.1.SubnetId", "")
        for subnets in self.ec2.subnets.values():
            if subnet in subnets:
                return str(subnets[subnet].availability_zone)
        return ""

    def _do_TerminateInstances(self, request: _Request) -> _Answer:
        return self._through(request, "shutting-down", "terminated")

    def _do_StopInstances(self, request: _Request) -> _Answer:
        if any(one.lifecycle == "spot" for one in self._named(request)):
            words = "You can't stop the Spot Instance because it is associated with a one-time Spot Instance request."
            return request.error("UnsupportedOperation", words)
        return self._through(request, "stopping", "stopped")

    def _do_StartInstances(self, request: _Request) -> _Answer:
        for one in self._named(request):
            if one.state not in ("stopped", "running"):
                words = f"The instance '{one.id}' is not in a state from which it can be started."
                return request.error("IncorrectInstanceState", words)
        return self._through(request, "pending", "running")

    def _named(self, request: _Request) -> list[Any]:
        named = [value for key, value in request.parameters.items() if key.startswith("InstanceId.")]
        return [one for one in self.ec2.all_instances() if one.id in named]

    def _through(self, request: _Request, way: str, end: str) -> _Answer:
        """moto jumps to the end of a change; without `instant` the instance stays on the way there."""
        before = {one.id: one.state for one in self._named(request)}
        answer = self._forward(request)
        if answer[0].startswith("200") and not self.world.instant:
            for one in self._named(request):
                done = before[one.id] in (end, "terminated")
                self.move(one, before[one.id] if done else way)
        return answer

    def _do_DescribeInstances(self, request: _Request) -> _Answer:
        """Listings are served without what is too young for them."""
        youngest = time.monotonic() - self.world.listing_lag_s
        young = (
            {id for id, at in self._launched.items() if at > youngest} if self.world.listing_lag_s else set()
        )
        reservations = self.ec2.reservations
        hidden = {
            id: one
            for id, one in reservations.items()
            if any(instance.id in young for instance in one.instances)
        }
        for id in hidden:
            del reservations[id]
        try:
            return self._forward(request.with_parameter("MaxResults", str(self.world.page_size)))
        finally:
            reservations.update(hidden)

    def _do_CreateRoute(self, request: _Request) -> _Answer:
        given = request.parameters
        table = self.ec2.route_tables.get(given["RouteTableId"])
        block = given["DestinationCidrBlock"]
        if table is not None and any(one.destination_cidr_block == block for one in table.routes):
            return request.error("RouteAlreadyExists", f"The route identified by {block} already exists.")
        return self._forward(request)

    def _do_DeleteSecurityGroup(self, request: _Request) -> _Answer:
        group = request.parameters.get("GroupId", "")
        for one in self.instances():
            if any(group == other.id for nic in one.nics.values() for other in nic.group_set):
                return request.error("DependencyViolation", f"resource {group} has a dependent object")
        return self._forward(request)

    def _do_RemoveRoleFromInstanceProfile(self, request: _Request) -> _Answer:
        name, role = request.parameters["InstanceProfileName"], request.parameters["RoleName"]
        found = next((one for one in self.iam.instance_profiles.values() if one.name == name), None)
        if found is None or role not in [one.name for one in found.roles]:
            return request.error("NoSuchEntity", f"{role} is not in {name}", 404)
        return self._forward(request)

    def _do_CreateInstanceProfile(self, request: _Request) -> _Answer:
        self._profiles[request.parameters["InstanceProfileName"]] = time.monotonic()
        return self._forward(request)

    def _do_DescribeSpotInstanceRequests(self, request: _Request) -> _Answer:
        """Of the requests only those of warned machines, by a tag and their status."""
        filters = {
            one["Name"]: one["Values"]
            for one in aws_rules.read(request.action, request.parameters)[0]["Filters"]
        }
        (tag,) = (name for name in filters if name.startswith("tag:"))
        items = ""
        for one in self.instances("running"):
            tags = {entry["key"]: entry["value"] for entry in one.get_tags()}
            if one.id in self._warned and tags.get(tag.removeprefix("tag:")) in filters[tag]:
                assert "marked-for-termination" in filters["status-code"]
                items += (
                    f"<item><instanceId>{one.id}</instanceId>"
                    "<status><code>marked-for-termination</code></status></item>"
                )
        text = (
            '<DescribeSpotInstanceRequestsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
            f"<spotInstanceRequestSet>{items}</spotInstanceRequestSet></DescribeSpotInstanceRequestsResponse>"
        )
        return "200 OK", [("Content-Type", "text/xml")], text.encode()

    def _do_DescribeSpotPriceHistory(self, request: _Request) -> _Answer:
        status, headers, content = self._forward(request)
        price = f"<spotPrice>{self.world.spot_price:f}</spotPrice>".encode()
        return status, headers, re.sub(rb"<spotPrice>.*?</spotPrice>", price, content)

    def _do_GetParameter(self, request: _Request) -> _Answer:
        name = request.json["Name"]
        if name in self._parameters:
            return request.answer(
                {"Parameter": {"Name": name, "Type": "String", "Value": self._parameters[name]}}
            )
        return self._forward(request)

    def _do_GetServiceQuota(self, request: _Request) -> _Answer:
        code = request.json["QuotaCode"]
        if code not in self.world.quotas:
            return request.error("NoSuchResourceException", "no such quota")
        quota = {"QuotaCode": code, "QuotaName": f"Quota {code}", "Value": self.world.quotas[code]}
        return request.answer({"Quota": quota})

    def _do_GetProducts(self, request: _Request) -> _Answer:
        wanted = {one["Field"]: one["Value"] for one in request.json["Filters"]}
        price = self.world.prices.get(wanted["instanceType"])
        if price is None:
            return request.error("AccessDeniedException", "nobody may ask for prices here")
        dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}}
        product = {"terms": {"OnDemand": {"x": {"priceDimensions": {"y": dimension}}}}}
        return request.answer({"FormatVersion": "aws_v1", "PriceList": [json.dumps(product)]})

    def _do_DecodeAuthorizationMessage(self, request: _Request) -> _Answer:
        context = self.world.decoded.get(request.parameters["EncodedMessage"])
        if context is None:
            return request.error("AccessDenied", "may not decode", 403)
        text = json.dumps({"allowed": False, "context": context}).replace('"', "&quot;")
        body = (
            '<DecodeAuthorizationMessageResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            f"<DecodeAuthorizationMessageResult><DecodedMessage>{text}</DecodedMessage>"
            "</DecodeAuthorizationMessageResult></DecodeAuthorizationMessageResponse>"
        )
        return "200 OK", [("Content-Type", "text/xml")], body.encode()


_Answer = tuple[str, list[tuple[str, str]], bytes]


class _Request:
    """One call of the API, in whichever of its protocols."""

    def __init__(self, environ: dict[str, Any], body: bytes) -> None:
        self._environ = environ
        self._body = body
        found = re.search(r"Credential=([^/]+)/\d+/[^/]+/([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        self.access_key, self.service = (found[1], found[2]) if found else ("", "")
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        self.json: dict[str, Any] = json.loads(body or b"{}") if target else {}
        self.parameters = {} if target else dict(parse_qsl(body.decode(), keep_blank_values=True))
        self.action = target.rpartition(".")[2] if target else self.parameters.get("Action", "")
        self.is_json = bool(target)

    def digest(self) -> str:
        """Equal for equal calls."""
        return hashlib.sha256(self._body).hexdigest()

    def with_parameter(self, name: str, value: str) -> _Request:
        rest = "&".join(part for part in self._body.decode().split("&") if not part.startswith(f"{name}="))
        return _Request(self._environ, f"{rest}&{name}={value}".encode())

    def environ_for_moto(self) -> dict[str, Any]:
        return {**self._environ, "wsgi.input": io.BytesIO(self._body), "CONTENT_LENGTH": str(len(self._body))}

    def answer(self, value: dict[str, Any]) -> _Answer:
        return "200 OK", [("Content-Type", "application/x-amz-json-1.1")], json.dumps(value).encode()

    def error(self, code: str, message: str, status: int = 400) -> _Answer:
        if self.is_json:
            body = json.dumps({"__type": code, "message": message}).encode()
            return f"{status} x", [("Content-Type", "application/x-amz-json-1.1")], body
        inner = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        text = (
            f"<Response><Errors>{inner}</Errors><RequestID>1</RequestID></Response>"
            if self.service == "ec2"
            else f"<ErrorResponse>{inner}<RequestId>1</RequestId></ErrorResponse>"
        )
        return f"{status} x", [("Content-Type", "text/xml")], text.encode()


def _listed(statement: dict[str, Any]) -> list[str]:
    action = statement["Action"]
    return [action] if isinstance(action, str) else list(action)
