"""The Compute API through Google's SDK: the only module that knows it. Takes and returns JSON as the REST API has it.

Each call has a time limit and is repeated by `retries` (the SDK's own are off); calls that change something carry a
request id, so that repeating them does nothing twice. What goes wrong is translated by `errors`.
"""

from __future__ import annotations

import json
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, TypeVar

from autoscaler.provider import Auth, Config, ProviderError, Throttled, Transient
from clusterctl.providers import retries

from . import errors, principals
from .instances import SCOPE

Json = dict[str, Any]
T = TypeVar("T")
_CALLED = re.compile(r"^[A-Z]+ https?://\S+: ")
"""By which the SDK begins what the platform says."""
_SOURCE = re.compile(
    r"(?:projects/(?P<project>[^/]+)/)?(?:global|regions/(?P<region>[^/]+))/"
    r"(?P<kind>instanceTemplates|machineImages)/(?P<name>[^/]+)\Z"
)
_CALL_S = 20.0
_PAUSE_S = 0.5
_PAGE = 500
_SKU_PAGE = 5000
_BILLING = "https://cloudbilling.googleapis.com"
_COMPUTE_ENGINE = "6F81-5844-456A"
"""What Cloud Billing calls the service whose machines these are."""
_WAIT_S = 60.0
"""The platform answers a wait after two minutes at most; a connection is not left silent for so long."""


class ComputeApi:
    """One project. Safe to use from several threads.

    Args:
        project: "": that of the credentials.
        endpoint: another one, asked without credentials; "": Google's.
        patience_s: how long what may pass is tried again. 0: never, the caller does that.
    """

    def __init__(self, project: str, endpoint: str, patience_s: float = 0.0) -> None:
        self._endpoint = endpoint
        self._patience_s = patience_s
        self._given_project = project
        self._lock = threading.RLock()
        self._clients: dict[str, Any] = {}
        self._found: tuple[Any, str] | None = None

    @property
    def project(self) -> str:
        """Whose machines these are.

        Raises:
            Auth: there are no credentials.
            Config: neither the spec nor the credentials name one.
        """
        if self._given_project:
            return self._given_project
        project = self._credentials()[1]
        if not project:
            raise Config(
                "the credentials name no project: set provider.project_id, or run `gcloud config set project PROJECT`"
            )
        return project

    def principal(self) -> str:
        """Who the credentials belong to, as an e-mail address; "": they do not tell.

        Raises:
            Auth: there are no credentials, or they are refused.
        """
        return self._translated(
            "asking whose the credentials are", lambda: principals.of_credentials(self._credentials()[0])
        )

    # ------------------------------------------------------------ what there is to have

    def project_info(self) -> Json:
        """With its default service account."""
        return self._get("Projects", f"project {self.project}")

    def region(self, name: str) -> Json:
        """With its quotas."""
        return self._get("Regions", f"region {name}", region=name)

    def zones(self) -> list[Json]:
        return [*self._list("Zones", "zones")]

    def machine_types(self, name: str) -> list[Json]:
        """The machine type of that name in each zone that has it."""
        return [
            *self._aggregated("MachineTypes", f"machine type {name}", "machine_types", f"name = {name}")[0]
        ]

    def accelerator_types(self, name: str) -> list[Json]:
        """The accelerator of that name in each zone that has it."""
        found = self._aggregated(
            "AcceleratorTypes", f"accelerator {name}", "accelerator_types", f"name = {name}"
        )
        return [*found[0]]

    def image(self, link: str) -> Json:
        """An image by its link, or that which a family's link leads to."""
        parts = link.partition("projects/")[2].split("/")
        if len(parts) == 5 and parts[1:4] == ["global", "images", "family"]:
            client = self._client("Images")
            request = {"project": parts[0], "family": parts[4]}
            return _json(self._call(f"image {link}", client.get_from_family, request))
        if len(parts) != 4 or parts[1:3] != ["global", "images"]:
            raise Config(f"'{link}' is no image: write projects/PROJECT/global/images/family/FAMILY")
        return self._get("Images", f"image {link}", project=parts[0], image=parts[3])

    def properties(self, link: str) -> Json:
        """What an instance template, global or of a region, or a machine image says of its instances."""
        match = _SOURCE.search(link)
        if match is None:
            raise Config(
                f"'{link}' is no instance template: write projects/PROJECT/global/instanceTemplates/NAME"
            )
        name, where = match["name"], {"project": match["project"] or self.project}
        if match["kind"] == "machineImages":
            found = self._get("MachineImages", f"machine image {name}", machine_image=name, **where)
            return dict(found.get("instanceProperties", {}))
        where |= {"instance_template": name} | ({"region": match["region"]} if match["region"] else {})
        client = "RegionInstanceTemplates" if match["region"] else "InstanceTemplates"
        return dict(self._get(client, f"instance template {name}", **where).get("properties", {}))

    def network(self, name: str) -> Json:
        return self._get("Networks", f"network {name}", network=name)

    def subnetwork(self, region: str, name: str) -> Json:
        return self._get("Subnetworks", f"subnetwork {name}", region=region, subnetwork=name)

    def skus(self) -> Iterator[Json]:
        """The entries of Cloud Billing's catalogue for Compute Engine."""
        query = {"currencyCode": "USD", "pageSize": str(_SKU_PAGE)}
        while True:
            page = self._translated("asking for prices", partial(self._sku_page, dict(query)))
            yield from page.get("skus", ())
            if not page.get("nextPageToken"):
                return
            query["pageToken"] = page["nextPageToken"]

    def _sku_page(self, query: Mapping[str, str]) -> Json:
        from google.api_core.exceptions import from_http_response
        from google.auth.transport.requests import AuthorizedSession
        from google.oauth2.credentials import Credentials

        credentials = self._credentials()[0]
        if isinstance(credentials, Credentials) and not credentials.quota_project_id:
            credentials = credentials.with_quota_project(
                self.project
            )  # this API asks for one where people ask
        with AuthorizedSession(credentials) as session:  # type: ignore[no-untyped-call]
            url = f"{self._endpoint or _BILLING}/v1/services/{_COMPUTE_ENGINE}/skus"
            response = session.get(url, params=query, timeout=_CALL_S)
            if not response.ok:
                raise from_http_response(response)  # type: ignore[no-untyped-call]
            page: Json = response.json()
            return page

    # ------------------------------------------------------------ instances

    def insert(self, zone: str, body: Json, query: Mapping[str, str], request_id: str) -> Json:
        """The operation that makes an instance.

        Raises:
            AlreadyThere: the zone has one of that name.
            Config: the body is wrong.
        """
        from google.cloud import compute_v1

        doing = f"creating {body['name']} in {zone}"
        request: Json = {"project": self.project, "zone": zone, "request_id": request_id}
        if "sourceInstanceTemplate" in query:
            request["source_instance_template"] = query["sourceInstanceTemplate"]
        if "sourceMachineImage" in query:
            request["source_machine_image"] = query["sourceMachineImage"]
        request["instance_resource"] = _message(compute_v1.Instance, body, "node_config")
        return _json(self._call(doing, self._client("Instances").insert_unary, request))

    def instance(self, zone: str, name: str) -> Json:
        return self._get("Instances", f"machine {name} in {zone}", zone=zone, instance=name)

    def instances(self, wanted: str) -> tuple[list[Json], set[str]]:
        """The instances that a filter lets through, in all zones, and the zones that could not be asked."""
        return self._aggregated("Instances", "listing machines", "instances", wanted)

    def change(self, verb: str, zone: str, name: str, request_id: str) -> Json:
        """The operation that deletes, stops or starts an instance.

        Args:
            verb: `delete`, `stop` or `start`.
        """
        call = getattr(self._client("Instances"), f"{verb}_unary")
        request = {"project": self.project, "zone": zone, "instance": name, "request_id": request_id}
        return _json(self._call(f"{verb} {name} in {zone}", call, request))

    # ------------------------------------------------------------ firewalls

    def firewalls(self) -> list[Json]:
        return [*self._list("Firewalls", "firewall rules")]

    def insert_firewall(self, body: Json, request_id: str) -> Json:
        from google.cloud import compute_v1

        rule = _message(compute_v1.Firewall, body, "the firewall rule")
        request = {"project": self.project, "firewall_resource": rule, "request_id": request_id}
        return _json(
            self._call(f"firewall rule {body['name']}", self._client("Firewalls").insert_unary, request)
        )

    def delete_firewall(self, name: str) -> Json:
        request = {"project": self.project, "firewall": name}
        return _json(self._call(f"firewall rule {name}", self._client("Firewalls").delete_unary, request))

    # ------------------------------------------------------------ operations

    def wait(self, operation: Json, deadline: float) -> Json:
        """The operation when it has ended, or as it is at the deadline (on the monotonic clock)."""
        zone = str(operation.get("zone", "")).rpartition("/")[2]
        client = self._client("ZoneOperations" if zone else "GlobalOperations")
        request = {
            "project": self.project,
            "operation": operation["name"],
            **({"zone": zone} if zone else {}),
        }
        while operation.get("status") != "DONE" and (left := deadline - time.monotonic()) > 0:
            limit_s = min(_WAIT_S, left)
            began = time.monotonic()
            try:
                doing = f"waiting for {operation['name']}"
                operation = _json(self._call(doing, client.wait, request, limit_s, patience_s=0.0))
            except Throttled:
                raise
            except Transient:
                # Answers that take too long end like lost connections; others are not asked in a hurry.
                time.sleep(max(0.0, min(_PAUSE_S, left) - (time.monotonic() - began)))
        return operation

    # ------------------------------------------------------------ inside

    def _get(self, client: str, doing: str, **request: str) -> Json:
        request.setdefault("project", self.project)
        return _json(self._call(doing, self._client(client).get, request))

    def _list(self, client: str, doing: str) -> Iterator[Json]:
        request = {"project": self.project, "max_results": _PAGE}
        pager = self._call(doing, self._client(client).list, request)
        for page in self._pages(doing, pager):
            yield from (_json(item) for item in page.items)

    def _aggregated(self, client: str, doing: str, what: str, wanted: str) -> tuple[list[Json], set[str]]:
        request = {"project": self.project, "filter": wanted, "max_results": _PAGE}
        pager = self._call(doing, self._client(client).aggregated_list, request)
        found: list[Json] = []
        silent: set[str] = set()
        for page in self._pages(doing, pager):
            silent.update(place.rpartition("/")[2] for place in page.unreachables)
            for scope, part in page.items.items():
                found += [_json(item) for item in getattr(part, what)]
                if part.warning.code == "UNREACHABLE":
                    silent.add(scope.rpartition("/")[2])
        return found, silent

    def _pages(self, doing: str, pager: Any) -> Iterator[Any]:
        pages = iter(pager.pages)
        while True:
            page = self._translated(doing, lambda: next(pages, None))
            if page is None:
                return
            yield page

    def _call(
        self,
        doing: str,
        call: Callable[..., T],
        request: Mapping[str, Any],
        limit_s: float | None = None,
        patience_s: float | None = None,
    ) -> T:
        limit_s = _CALL_S if limit_s is None else limit_s
        once = partial(call, request=dict(request), retry=None, timeout=limit_s)
        return retries.patiently(
            lambda: self._translated(doing, once), self._patience_s if patience_s is None else patience_s
        )

    def _translated(self, doing: str, call: Callable[[], T]) -> T:
        """The only place that knows what the SDK raises."""
        import google.auth.exceptions
        import requests
        from google.api_core.exceptions import GoogleAPICallError, RetryError

        try:
            return call()
        except GoogleAPICallError as error:
            reasons = tuple(str(e.get("reason", "")) for e in error.errors if isinstance(e, Mapping))
            status = int(error.code or 500)
            message = _CALLED.sub("", error.message)
            raise errors.of_answer(doing, status, reasons, message, _retry_after_s(error)) from error
        except google.auth.exceptions.TransportError as error:
            raise Transient(f"{doing}: {error}") from error
        except google.auth.exceptions.GoogleAuthError as error:
            raise _no_credentials(error) from error
        except (requests.RequestException, RetryError, OSError) as error:
            raise Transient(f"{doing}: the API does not answer: {_cause(error)}") from error

    def _client(self, name: str) -> Any:
        """The SDK has one client for each kind of thing."""
        with self._lock:
            if name not in self._clients:
                from google.api_core.client_options import ClientOptions
                from google.cloud import compute_v1

                options = ClientOptions(api_endpoint=self._endpoint) if self._endpoint else None
                kind = getattr(compute_v1, f"{name}Client")
                self._clients[name] = kind(credentials=self._credentials()[0], client_options=options)
            return self._clients[name]

    def _credentials(self) -> tuple[Any, str]:
        """Credentials, and the project that they name."""
        import google.auth
        import google.auth.credentials
        import google.auth.exceptions

        with self._lock:
            if self._found is None:
                if self._endpoint:
                    self._found = google.auth.credentials.AnonymousCredentials(), ""  # type: ignore[no-untyped-call]
                else:
                    try:
                        with warnings.catch_warnings():  # about quota projects, which only some APIs want
                            warnings.simplefilter("ignore")
                            credentials, project = google.auth.default(scopes=[SCOPE])
                    except google.auth.exceptions.GoogleAuthError as error:
                        raise _no_credentials(error) from error
                    self._found = credentials, project or ""
            return self._found


@cache
def of(project: str, endpoint: str, patience_s: float) -> ComputeApi:
    """The one of this process: its connections are kept."""
    return ComputeApi(project, endpoint, patience_s)


def _cause(error: Exception) -> str:
    """What lies below the layers of HTTP."""
    below = error.args[0] if error.args else error
    return str(getattr(below, "reason", below)).rpartition("): ")[2]


def _no_credentials(error: Exception) -> ProviderError:
    said = str(error).rstrip(".")
    return Auth(
        f"no usable Google credentials: {said}. Run `gcloud auth application-default login`, or name a key file in "
        "GOOGLE_APPLICATION_CREDENTIALS"
    )


def _retry_after_s(error: Any) -> float:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    text = str(headers.get("Retry-After", ""))
    return float(text) if text.isdigit() else 0.0


def _json(message: Any) -> Json:
    from google.protobuf import json_format

    found: Json = json_format.MessageToDict(type(message).pb(message))
    return found


def _message(kind: Any, body: Json, where: str) -> Any:
    """The SDK's own type of a body: a field that it does not know is an error."""
    from google.protobuf.json_format import ParseError

    try:
        return kind.from_json(json.dumps(body), ignore_unknown_fields=False)
    except ParseError as error:
        raise Config(f"{where} is not what the Compute API takes: {error}") from error


def check_body(body: Json, where: str) -> None:
    """Checks the names and types of an instance's fields, without any call.

    Raises:
        Config: one is wrong.
    """
    from google.cloud import compute_v1

    _message(compute_v1.Instance, body, where)
