"""The demand trace: what a cluster is asked for over time, and what goes wrong meanwhile. JSON, strictly
typed: an unknown key is an error that names the nearest one.

Times are seconds since the rehearsal began; amounts are as users count them ({"CPU": 1}). An entry with
`times` and `every_s` comes again and again, so that a steady load needs one entry.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from autoscaler.provider import ON_DEMAND, SPOT
from runtime._core.labels import matches
from runtime._core.resources import to_units

Seconds = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Amounts = dict[str, Annotated[float, Meta(ge=0)]]
Labels = dict[str, str]
Span = Seconds | Annotated[list[Seconds], Meta(min_length=2, max_length=2)]
"""A length of time: fixed, or drawn evenly between two bounds. (A list, for msgspec 0.22 crashes on a tuple beside a
constrained number.)"""

Market = Literal["", "on-demand", "spot"]
assert set(Market.__args__) == {"", ON_DEMAND, SPOT}  # type: ignore[attr-defined]

FaultKind = Literal[
    "stockout",
    "quota",
    "spot_loss",
    "node_death",
    "setup_failure",
    "slow_boot",
    "never_boots",
    "made_twice",
    "throttle",
    "stale_listing",
    "lost_reply",
    "autoscaler_restart",
    "memory_loss",
]
RESTARTS = ("autoscaler_restart", "memory_loss")
MOMENTARY = ("spot_loss", "node_death", *RESTARTS)
"""Faults that happen at one moment; all others last from `at_s` until `until_s`."""


class TraceError(ValueError):
    """A trace is wrong: where, what, and what would be right."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every entry has: when it comes, and how often."""

    at_s: Seconds = 0.0
    times: Count = 1
    every_s: Seconds = 0.0

    def moments(self) -> Iterator[float]:
        """The times at which the entry comes."""
        for number in range(self.times):
            yield self.at_s + number * self.every_s


def _one_cpu() -> Amounts:
    return {"CPU": 1.0}


class Tasks(Entry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`count` equal tasks that run for `duration_s` each."""

    count: Count = 1
    resources: Amounts = msgspec.field(default_factory=_one_cpu)
    duration_s: Span
    selector: Labels = {}
    fallbacks: list[Labels] = []


class Actors(Entry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`count` equal actors; without a duration they live for ever."""

    count: Count = 1
    resources: Amounts = msgspec.field(default_factory=_one_cpu)
    duration_s: Span | None = None
    selector: Labels = {}
    fallbacks: list[Labels] = []


class Groups(Entry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`count` equal placement groups; each is held for `duration_s` from the moment it is whole."""

    count: Count = 1
    bundles: Annotated[list[Amounts], Meta(min_length=1)]
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    selectors: list[Labels] = []
    duration_s: Span | None


class Requests(Entry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An explicit request for `count` of each bundle: it replaces the owner's last one and holds for `ttl_s` (0: for
    ever)."""

    count: Count = 1
    bundles: list[Amounts]
    selectors: list[Labels] = []
    ttl_s: Seconds = 0.0
    owner: str = "trace"


class Fault(Entry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that goes wrong.

    stockout: no more than `count` (0 without it) machines of such an offer are to be had.
    quota: the account may not have more than `count` (0 without it) machines of such an offer.
    spot_loss: `count` (all without it) machines vanish, each with `probability`; of the spot market unless
        `market` says otherwise.
    node_death: the daemons of `count` (all without it) nodes die, each with `probability`; machines stay.
    setup_failure: setups fail with `probability`.
    slow_boot: machines made meanwhile take `seconds` to boot.
    never_boots: machines made meanwhile never run, with `probability`.
    made_twice: a create makes a machine once more than was asked, with `probability` for each.
    throttle: calls are refused with `probability`: repeat after `seconds` (5 without it).
    stale_listing: listings are up to `seconds` old.
    autoscaler_restart: its process is lost with the answers it waited for; a new one carries on from what was saved.
    memory_loss: the same, and nothing was saved.
    lost_reply: with `probability`, a create does its work and its answer is lost.

    Attributes:
        until_s: when it is over; None: never. Not for what happens at one moment.
        node_type, zone, market: which offers or nodes are hit; "": any.
    """

    kind: FaultKind
    until_s: Seconds | None = None
    node_type: str = ""
    zone: str = ""
    market: Market = ""
    probability: Share = 1.0
    count: Annotated[int, Meta(ge=0)] | None = None
    seconds: Seconds | None = None


def describe(fault: Fault) -> str:
    """The fault in a few words: "stockout of gpu in zone a"."""
    where = [f"of {fault.node_type}"] if fault.node_type else []
    where += [f"in zone {fault.zone}"] if fault.zone else []
    where += [f"({fault.market})"] if fault.market else []
    return " ".join([fault.kind.replace("_", " "), *where])


class Offered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to get machines of a type, with its price per machine and hour."""

    price: Seconds
    zone: str = ""
    market: Literal["on-demand", "spot"] = "on-demand"


class Trace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that happens to a cluster from outside.

    Attributes:
        until_s: the rehearsal ends exactly then. None: when all is served and the cluster has come to rest.
        offers: node type -> what the platform has on offer; it wins over what the provider says.
        seed: of everything drawn: durations, faults, ties.
    """

    name: str = "trace"
    until_s: Seconds | None = None
    tasks: list[Tasks] = []
    actors: list[Actors] = []
    groups: list[Groups] = []
    requests: list[Requests] = []
    faults: list[Fault] = []
    offers: dict[str, Annotated[list[Offered], Meta(min_length=1)]] = {}
    seed: int = 0

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)


def load(file: str | Path) -> Trace:
    """Reads a trace from a file.

    Raises:
        OSError: the file cannot be read.
        TraceError: it is no trace; the message names the place and what is allowed there.
    """
    return parse(Path(file).read_bytes())


def parse(text: bytes | str) -> Trace:
    """Reads a trace from JSON text.

    Raises:
        TraceError: as for `load`.
    """
    try:
        trace = msgspec.json.decode(text, type=Trace)
    except msgspec.ValidationError as error:
        raise TraceError(_explained(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"this is not JSON: {error}") from None
    check(trace)
    return trace


def check(trace: Trace) -> None:
    """What the types alone cannot say.

    Raises:
        TraceError: something is wrong.
    """
    for section in ("tasks", "actors", "groups", "requests", "faults"):
        for index, entry in enumerate(getattr(trace, section)):
            problem = _problem_of(entry)
            if problem:
                raise TraceError(f"{section}[{index}]: {problem}")


def _problem_of(entry: Entry) -> str:
    if entry.times > 1 and entry.every_s <= 0:
        return "`times` needs `every_s`: the seconds from one time to the next"
    if isinstance(entry, Tasks | Actors | Groups):
        span = entry.duration_s
        if isinstance(span, list) and span[0] > span[1]:
            return f"duration_s: the lower bound {span[0]:g} is above the upper {span[1]:g}"
    if isinstance(entry, Tasks | Actors):
        return _wrong_amounts([entry.resources]) or _wrong_selectors([entry.selector, *entry.fallbacks])
    if isinstance(entry, Groups | Requests):
        if entry.selectors and len(entry.selectors) != len(entry.bundles):
            return (
                f"{len(entry.selectors)} selectors for {len(entry.bundles)} bundles: give one each, or none"
            )
        return _wrong_amounts(entry.bundles) or _wrong_selectors(entry.selectors)
    if isinstance(entry, Fault):
        return _wrong_fault(entry)
    return ""


def _wrong_amounts(bundles: list[Amounts]) -> str:
    for amounts in bundles:
        try:
            to_units(amounts)
        except ValueError as error:
            return str(error)
    return ""


def _wrong_selectors(selectors: list[Labels]) -> str:
    for selector in selectors:
        try:
            matches(selector, dict.fromkeys(selector, ""))
        except ValueError as error:
            return str(error)
    return ""


def _wrong_fault(fault: Fault) -> str:
    if fault.kind in MOMENTARY and fault.until_s is not None:
        return f"{fault.kind} happens at one moment and has no until_s; use `times` and `every_s`"
    if fault.until_s is not None and fault.until_s <= fault.at_s:
        return f"until_s {fault.until_s:g} is not after at_s {fault.at_s:g}"
    if fault.kind not in MOMENTARY and fault.times > 1 and fault.until_s is None:
        return f"a {fault.kind} that comes again needs until_s, the end of the first"
    if fault.kind in ("slow_boot", "stale_listing") and fault.seconds is None:
        return f"{fault.kind} needs `seconds`"
    return ""


_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>[^`]*)`")
_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "": Trace,
    "tasks": Tasks,
    "actors": Actors,
    "groups": Groups,
    "requests": Requests,
    "faults": Fault,
    "offers": Offered,
}


def _explained(message: str) -> str:
    """The decoder's complaint with the place in front, and the nearest key for an unknown one."""
    place = _PLACE.search(message)
    path = place["path"] if place else ""
    text = message[: place.start()] if place else message
    unknown = _UNKNOWN.search(text)
    if unknown is not None:
        kind = _SECTIONS[re.split(r"[\[.]", path)[0]]
        known = [field.encode_name for field in msgspec.structs.fields(kind)]
        near = difflib.get_close_matches(unknown["key"], known, 1)
        advice = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
        text = f"unknown key '{unknown['key']}'; {advice}"
    return f"{path}: {text}" if path else text
