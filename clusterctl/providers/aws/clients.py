"""The API of AWS: clients of boto3 that are made when they are first needed, and one way to call them.

boto3's own retries are off, ours are in `retries`. Calls may be repeated, but for those that say otherwise.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from autoscaler.provider import Auth, Config, NotFound, ProviderError, Transient
from clusterctl.providers import retries

from . import errors

_CONNECT_S = 5.0
_READ_S = 30.0
_POOL = 16
_YOUNG_S = 20.0
_YOUNG_POLL_S = 1.0
_PRICING_REGION = "us-east-1"
"""The price list is served in few regions, for all of them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the API is, and as whom it is asked."""

    region: str
    profile: str = ""
    endpoint_url: str = ""


@dataclass(slots=True)
class _Shared:
    """What boto3 made for a place. Reading the API's description takes it a while, so a process does that once.

    Attributes:
        region_answers: one of its region's services has answered, so it exists.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    session: Any = None
    clients: dict[str, Any] = field(default_factory=dict)
    region_answers: bool = False


_SHARED: dict[Place, _Shared] = {}


class Clients:
    """The clients of one place. Safe to use from any thread.

    Args:
        patience_s: how long what may pass is tried again. 0: never, the caller does that.
    """

    def __init__(self, place: Place, patience_s: float) -> None:
        self.place = place
        self._patience_s = patience_s
        self._shared = _SHARED.setdefault(place, _Shared())

    def call(
        self,
        service: str,
        method: str,
        *,
        patience_s: float | None = None,
        repeatable: bool = True,
        **parameters: Any,
    ) -> dict[str, Any]:
        """One call: its answer, without the metadata.

        Args:
            repeatable: to be carried out twice does no harm; else it is repeated only if it certainly was not.

        Raises:
            ProviderError: whatever it was, see `errors`.
        """
        once = partial(self._once, service, method, parameters)
        patience_s = self._patience_s if patience_s is None else patience_s
        return retries.patiently(once, patience_s, repeatable=repeatable)

    def ec2(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A call of EC2."""
        return self.call("ec2", method, **parameters)

    def iam(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A call of IAM."""
        return self.call("iam", method, **parameters)

    def young(self, service: str, method: str, **parameters: Any) -> dict[str, Any]:
        """A call about what was made just now, which not every part of AWS knows at once."""
        call = partial(self.call, service, method, **parameters)
        return retries.while_raising(NotFound, call, _YOUNG_S, _YOUNG_POLL_S)

    def ensure(self, service: str, method: str, *done: str, **parameters: Any) -> None:
        """A call about what was made just now, which is refused with words of `done` when it was carried out before."""
        try:
            self.young(service, method, **parameters)
        except ProviderError as error:
            if not any(words in str(error) for words in done):
                raise

    def remove(self, service: str, method: str, *done: str, **parameters: Any) -> None:
        """A call that removes something: what is not there, or is refused with words of `done`, is removed."""
        try:
            self.call(service, method, **parameters)
        except NotFound:
            pass
        except Config as error:
            if not any(words in str(error) for words in done):
                raise

    def pages(self, method: str, key: str, **parameters: Any) -> Iterator[Any]:
        """All entries `key` of a call of EC2 that answers page by page."""
        token: dict[str, Any] = {}
        while True:
            answer = self.ec2(method, **parameters, **token)
            yield from answer.get(key) or ()
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}

    def allowed(self, method: str, **parameters: Any) -> ProviderError | None:
        """Whether a call of EC2 would be allowed and well-formed: asks without doing. None: it would."""
        try:
            self.ec2(method, DryRun=True, **parameters)
        except ProviderError as error:
            return None if "DryRunOperation" in str(error) else error
        return None

    def problem_of(self, operation: str, parameters: Mapping[str, Any]) -> str:
        """What of a call's parameters EC2 does not know or take, without asking anybody; "" when all is well.

        Args:
            operation: as the API calls it, e.g. "RunInstances".
        """
        from botocore.exceptions import ParamValidationError
        from botocore.validate import validate_parameters

        try:
            validate_parameters(dict(parameters), _ec2_model().operation_model(operation).input_shape)
        except ParamValidationError as error:
            return " ".join(str(error).split()).removeprefix("Parameter validation failed: ")
        return ""

    def partition(self) -> str:
        """The part of AWS that the region is in: aws, aws-cn, aws-us-gov."""
        return str(self._client("ec2").meta.partition)

    # -- inside

    def _once(self, service: str, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        client = self._client(service)
        with self._translated(client, method):
            answer: dict[str, Any] = getattr(client, method)(**parameters)
            answer.pop("ResponseMetadata", None)
            return answer
        raise AssertionError("unreachable")

    def _has_answered(self, client: Any) -> None:
        """Takes note if that says something of the region: some services are the same for all regions."""
        if self.place.region in client.meta.endpoint_url:
            self._shared.region_answers = True

    @contextlib.contextmanager
    def _translated(self, client: Any, method: str) -> Iterator[None]:
        """The one place where what boto3 raises becomes ours."""
        from botocore import exceptions as boto
        from botocore.parsers import ResponseParserError

        try:
            yield
            self._has_answered(client)
        except boto.ClientError as error:
            self._has_answered(client)
            operation = error.operation_name
            detail = error.response.get("Error", {})
            code, message = str(detail.get("Code", "")), str(detail.get("Message", ""))
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400))
            decoded = self._decoded(errors.encoded_authorization(message))
            raise errors.refusal(operation, code, message, status, decoded) from error
        except (boto.NoCredentialsError, boto.PartialCredentialsError) as error:
            raise Auth(
                f"there are no credentials for AWS here ({error}): run `aws configure`, or set AWS_PROFILE"
            ) from error
        except (boto.TokenRetrievalError, boto.SSOError, boto.CredentialRetrievalError) as error:
            raise Auth(f"the credentials for AWS cannot be had: {error}") from error
        except boto.ParamValidationError as error:
            raise Config(f"{method}: {' '.join(str(error).split())}") from error
        except (boto.ConnectionError, boto.HTTPClientError, ResponseParserError) as error:
            if isinstance(error, boto.EndpointConnectionError) and self._may_be_no_region():
                raise Config(
                    f"AWS does not answer, and boto3 knows no region {self.place.region}: correct provider.region"
                ) from error
            raise Transient(f"AWS does not answer: {error}") from error
        except boto.BotoCoreError as error:
            raise Config(f"{method}: {error}") from error

    def _may_be_no_region(self) -> bool:
        """Whether nothing speaks for the region: regions newer than boto3 are not known to it."""
        place = self.place
        return not (place.endpoint_url or self._shared.region_answers or place.region in _regions())

    def _decoded(self, encoded: str) -> str:
        """What STS says that was refused: action, resource. "" when we may not ask it."""
        if not encoded:
            return ""
        from botocore import exceptions as boto

        try:
            answer = self._client("sts").decode_authorization_message(EncodedMessage=encoded)
            context = json.loads(answer["DecodedMessage"])["context"]
            return f"allow {context['action']} on {context['resource']}"
        except (boto.BotoCoreError, boto.ClientError, ValueError, KeyError):
            return ""

    def _client(self, service: str) -> Any:
        shared = self._shared
        with shared.lock:
            if service in shared.clients:
                return shared.clients[service]
            session, is_known = self._session(shared)
            client = self._make(service, session)
            # One that is made without credentials never finds any. The head's come a while after its machine, and
            # those that come while the client is made may have missed it.
            if is_known:
                shared.clients[service] = client
            return client

    def _session(self, shared: _Shared) -> tuple[Any, bool]:
        """boto3's session, and whether it has credentials, which it then keeps."""
        import boto3
        from botocore import exceptions as boto

        place = self.place
        try:
            if shared.session is None:
                shared.session = boto3.session.Session(
                    profile_name=place.profile or None, region_name=place.region
                )
            return shared.session, shared.session.get_credentials() is not None
        except boto.BotoCoreError as error:
            raise Config(f"the settings for AWS are wrong: {error}") from error

    def _make(self, service: str, session: Any) -> Any:
        from botocore import config
        from botocore import exceptions as boto

        place = self.place
        try:
            return session.client(
                service,
                region_name=_PRICING_REGION if service == "pricing" else place.region,
                endpoint_url=place.endpoint_url or None,
                config=config.Config(
                    connect_timeout=_CONNECT_S,
                    read_timeout=_READ_S,
                    retries={"total_max_attempts": 1},
                    max_pool_connections=_POOL,
                    user_agent_extra="clusterctl",
                ),
            )
        except boto.BotoCoreError as error:
            raise Config(f"the settings for AWS are wrong: {error}") from error


@cache
def _ec2_model() -> Any:
    """The description of EC2's API that comes with boto3."""
    from botocore.session import get_session

    return get_session().get_service_model("ec2")


@cache
def _regions() -> frozenset[str]:
    """The regions that boto3 knows, in all partitions."""
    from botocore.session import get_session

    session = get_session()
    partitions = session.get_available_partitions()
    return frozenset(name for one in partitions for name in session.get_available_regions("ec2", one))
