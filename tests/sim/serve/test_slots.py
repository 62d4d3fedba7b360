"""Callers and replicas with random delays, deaths, resizes and drains: slots are never exceeded, none lies idle while a
request waits, and no request is lost."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest

from runtime.serve._core.slots import Borrower, Effects, Lender
from runtime.serve._wire.messages import Grant, Recall, Return, Want


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass
class Replica:
    lender: Lender
    slots: int
    most_lent: int
    """What may be lent: its slots, or after a resize what was lent before."""
    draining: bool = False
    running: list[tuple[int, int]] = field(default_factory=list)  # (caller, request)


@dataclass
class Caller:
    borrower: Borrower
    restricted: dict[int, frozenset[str] | None] = field(default_factory=dict)
    """Requests that have not ended."""
    sent: dict[int, str] = field(default_factory=dict)


class World:
    """All messages of a pair arrive in order; between pairs nothing is ordered."""

    def __init__(self, seed: int, lender: type[Lender] = Lender, borrower: type[Borrower] = Borrower) -> None:
        self.random = Random(seed)
        self._lender, self._borrower = lender, borrower
        self.replicas: dict[str, Replica] = {}
        self.callers: dict[int, Caller] = {}
        self.to_replica: dict[tuple[int, str], deque[object]] = {}
        self.to_caller: dict[tuple[int, str], deque[object]] = {}
        self._made = 0

    def run(self, steps: int) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.add_replica()
        for _ in range(self.random.randint(1, 4)):
            self.add_caller()
        actions = [
            (self.deliver_one, 60),
            (self.request, 14),
            (self.end_one, 14),
            (self.cancel, 2),
            (self.allow, 2),
            (self.resize, 1),
            (self.drain, 0.4),
            (self.kill_replica, 0.3),
            (self.add_replica, 0.7),
            (self.kill_caller, 0.3),
            (self.add_caller, 0.4),
            (self.settle, 2),
        ]
        names, weights = zip(*actions, strict=True)
        for action in self.random.choices(names, weights, k=steps):
            action()
            self.check()
        self.finish()

    # ------------------------------------------------------------ what happens

    def number(self) -> int:
        self._made += 1
        return self._made

    def add_replica(self) -> None:
        if len(self.replicas) >= 5:
            return
        name, slots = f"r{self.number()}", self.random.choice([1, 1, 2, 5])
        self.replicas[name] = Replica(self._lender(slots), slots, slots)
        for caller in self.callers:
            self.connect(caller, name)

    def add_caller(self) -> None:
        if len(self.callers) >= 5:
            return
        number = self.number()
        self.callers[number] = Caller(self._borrower(Random(self.random.random())))
        for name, replica in self.replicas.items():
            if not replica.draining:
                self.connect(number, name)

    def connect(self, caller: int, name: str) -> None:
        self.to_replica[caller, name], self.to_caller[caller, name] = deque(), deque()
        self.effects(name, self.replicas[name].lender.connect(caller))
        self.callers[caller].borrower.add(
            name, near=self.random.random() < 0.3, slots=self.replicas[name].slots
        )

    def request(self) -> None:
        for number in self.pick(self.callers):
            for _ in range(self.random.choice([1, 1, 1, 4])):
                request, allowed = self.number(), None
                if self.random.random() < 0.2 and self.replicas:
                    allowed = frozenset(self.random.sample(list(self.replicas), 1))
                caller = self.callers[number]
                caller.restricted[request] = allowed
                self.sent(number, caller.borrower.ask(request, allowed), request)

    def allow(self) -> None:
        for number in self.pick(self.callers):
            caller = self.callers[number]
            for request in self.pick(caller.restricted):
                if request not in caller.sent:
                    caller.restricted[request] = None
                    self.sent(number, caller.borrower.allow(request, None), request)

    def cancel(self) -> None:
        for number in self.pick(self.callers):
            caller = self.callers[number]
            for request in self.pick(caller.restricted):
                if caller.borrower.forget(request):
                    del caller.restricted[request]

    def end_one(self) -> None:
        for name in self.pick(self.replicas):
            replica = self.replicas[name]
            if not replica.running:
                return
            number, request = replica.running.pop(self.random.randrange(len(replica.running)))
            keep, effects = replica.lender.end(number)
            if number in self.callers:
                self.to_caller[number, name].append(("end", request, keep))
            self.effects(name, effects)

    def resize(self) -> None:
        for name in self.pick(self.replicas):
            replica = self.replicas[name]
            replica.slots = self.random.choice([1, 2, 5])
            self.effects(name, replica.lender.resize(replica.slots))

    def drain(self) -> None:
        """The controller tells all callers, then the replica; the callers hear of it sooner or later."""
        for name in self.pick(self.replicas):
            replica = self.replicas[name]
            if not replica.draining:
                replica.draining = True
                for number in self.callers:
                    if (number, name) in self.to_caller:
                        self.to_caller[number, name].append("retire")
                self.effects(name, replica.lender.drain())

    def kill_replica(self) -> None:
        for name in self.pick(self.replicas):
            del self.replicas[name]
            for number, caller in self.callers.items():
                if self.to_caller.pop((number, name), None) is not None:
                    del self.to_replica[number, name]
                    caller.borrower.lost(name)
                    for request in [one for one, where in caller.sent.items() if where == name]:
                        del caller.sent[request], caller.restricted[request]

    def kill_caller(self) -> None:
        for number in self.pick(self.callers):
            del self.callers[number]
            for name, replica in self.replicas.items():
                if self.to_caller.pop((number, name), None) is not None:
                    for message in self.to_replica.pop((number, name)):  # what was sent still arrives
                        self.at_replica(number, name, message)
                    self.effects(name, replica.lender.gone(number))

    # ------------------------------------------------------------ messages

    def pick(self, among):
        return self.random.sample(sorted(among), 1) if among else []

    def sent(self, number: int, name: str | None, request: int) -> None:
        if name is not None:
            self.callers[number].sent[request] = name
            self.to_replica[number, name].append(("call", request))

    def effects(self, name: str, effects: Effects) -> None:
        for caller, message in effects:
            if (caller, name) in self.to_caller:
                self.to_caller[caller, name].append(message)

    def deliver_one(self) -> None:
        if self.random.random() < 0.3:
            self.tell_wants()
        pipes = [(False, key) for key, pipe in self.to_replica.items() if pipe]
        pipes += [(True, key) for key, pipe in self.to_caller.items() if pipe]
        if pipes:
            to_caller, key = self.random.choice(pipes)
            if to_caller:
                self.at_caller(*key, self.to_caller[key].popleft())
            else:
                self.at_replica(*key, self.to_replica[key].popleft())

    def tell_wants(self) -> bool:
        told = False
        for number, caller in self.callers.items():
            for name, waiting in caller.borrower.wants():
                self.to_replica[number, name].append(Want(waiting))
                told = True
        return told

    def at_replica(self, number: int, name: str, message: object) -> None:
        replica = self.replicas[name]
        match message:
            case Want(waiting):
                self.effects(name, replica.lender.want(number, waiting))
            case Return(slots):
                self.effects(name, replica.lender.give_back(number, slots))
            case ("call", request):
                if not replica.lender.begin(number):
                    raise Violation(f"request {request} came to {name} without a slot")
                replica.running.append((number, request))

    def at_caller(self, number: int, name: str, message: object) -> None:
        caller = self.callers[number]
        back = self.to_replica[number, name]
        match message:
            case Grant(slots, scarce):
                for request in caller.borrower.granted(name, slots, scarce):
                    self.sent(number, name, request)
                surplus = caller.borrower.surplus(name, scarce)
                if surplus is not None:
                    back.append(Return(surplus))
            case Recall():
                back.append(Return(caller.borrower.recalled(name)))
            case "retire":
                if slots := caller.borrower.retire(name):
                    back.append(Return(slots))
            case ("end", ended, keep):
                del caller.sent[ended], caller.restricted[ended]
                following = caller.borrower.ended(name, keep)
                if following is not None:
                    self.sent(number, name, following)
                elif keep and name not in caller.borrower.replicas:
                    back.append(Return(caller.borrower.recalled(name)))

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        for name, replica in self.replicas.items():
            lender = replica.lender
            replica.most_lent = max(replica.slots, min(replica.most_lent, lender.lent))
            if lender.lent > replica.most_lent:
                raise Violation(f"{name} has lent {lender.lent} of {replica.most_lent} slots")
            if lender.ongoing != len(replica.running) or lender.ongoing > lender.lent:
                raise Violation(
                    f"{name} runs {len(replica.running)}, counts {lender.ongoing} of {lender.lent}"
                )

    def settle(self) -> None:
        """All messages arrive, and no request ends: then each slot is used if a request waits that it could serve."""
        for _ in range(20_000):
            told = self.tell_wants()
            if not told and not any(self.to_replica.values()) and not any(self.to_caller.values()):
                break
            self.deliver_one()
        else:
            raise Violation("the messages do not end")
        for number, caller in self.callers.items():
            for request, allowed in caller.restricted.items():
                if request in caller.sent:
                    continue
                for name in caller.borrower.replicas:
                    if (allowed is None or name in allowed) and self.has_free_slot(name):
                        raise Violation(f"request {request} of caller {number} waits while {name} has a slot")

    def has_free_slot(self, name: str) -> bool:
        return len(self.replicas[name].running) < self.replicas[name].slots

    def finish(self) -> None:
        """Requests that can run end some time, and drained replicas become idle."""
        for _ in range(2000):
            self.settle()
            if not any(replica.running for replica in self.replicas.values()):
                break
            self.end_one()
        for number, caller in self.callers.items():
            for request, allowed in caller.restricted.items():
                if any(allowed is None or name in allowed for name in caller.borrower.replicas):
                    raise Violation(f"request {request} of caller {number} was lost")
        for name, replica in self.replicas.items():
            if replica.draining and not replica.lender.is_idle:
                raise Violation(f"{name} drains, and {replica.lender.lent} slots do not come back")


@pytest.mark.parametrize("seed", range(20))
def test_slots_in_a_world_of_random_events(seed):
    try:
        World(seed).run(1000)
    except (Violation, ValueError, KeyError) as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error


class LendsTooMany(Lender):
    def resize(self, slots):
        return super().resize(slots + (slots == 1))


class NeverRecalls(Lender):
    def _recall(self, slots, among_wanting):
        return []


class ForgetsGone(Lender):
    def gone(self, caller):
        self._accounts[caller].running = 0
        return super().gone(caller)


class KeepsRecalled(Borrower):
    def recalled(self, replica):
        return 0


class AsksOneReplica(Borrower):
    def wants(self):
        return [(replica, count) for replica, count in super().wants() if replica == next(iter(self._loans))]


class LosesOnDeath(Borrower):
    def lost(self, replica):
        super().lost(replica)
        for request in list(self._waiting):
            self.forget(request)


@pytest.mark.parametrize(
    "fault", [LendsTooMany, NeverRecalls, ForgetsGone, KeepsRecalled, AsksOneReplica, LosesOnDeath]
)
def test_the_world_notices_faults(fault):
    def run(seed):
        if issubclass(fault, Lender):
            World(seed, lender=fault).run(1000)
        else:
            World(seed, borrower=fault).run(1000)

    for seed in range(15):
        try:
            run(seed)
        except (Violation, ValueError, KeyError):
            return
    raise AssertionError(f"{fault.__name__} went unnoticed")
