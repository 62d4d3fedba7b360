"""Slots: who may send how many requests to a replica. `Lender` is the replica's side, `Borrower` the caller's.

A replica never lends more slots than it has, and a request is sent only with a slot in hand, so requests wait with
their callers. A caller keeps its slots between requests until the replica recalls them: calls one by one need no
message but their own.

Both sides count how many more slots a caller wants: a `Want` sets the number, a slot that is granted or kept while the
caller wants lowers it by one. When a `Want` crosses a `Grant`, the lender's number is the higher one. So a lender may
lend a slot too many, and never forgets a caller.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeAlias, TypeVar

from runtime.serve._wire.messages import Grant, Recall

Request = TypeVar("Request", bound=Hashable)

Effects: TypeAlias = list[tuple[Hashable, Grant | Recall]]
"""What to send to which caller."""


@dataclass(slots=True)
class _Account:
    """What a lender knows of a caller.

    Attributes:
        lent: slots that the caller has, used or not.
        running: requests that run with one of them.
        waiting: slots that it wants besides.
        expected: slots just granted for requests that wait there: their requests are about to come.
        recalled: unused slots that it was asked for and has not answered about.
        gone: it is disconnected; its requests are still ending.
    """

    lent: int = 0
    running: int = 0
    waiting: int = 0
    expected: int = 0
    recalled: int = 0
    gone: bool = False

    @property
    def unused(self) -> int:
        return self.lent - self.running


FIRST_PAUSE = 8
"""A borrower that found no free slot at a replica seeks one there again after this many requests, then after twice as
many each time."""


class Lender:
    """The slots of one replica. Callers are any hashable values, one per connection."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._accounts: dict[Hashable, _Account] = {}
        self._wanting: OrderedDict[Hashable, _Account] = OrderedDict()  # whose turn is next comes first
        self._draining = False
        self.lent = 0
        """Slots that callers have, used or not."""
        self.ongoing = 0
        """Requests that run."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lent."""
        return self.lent == 0

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return self._slots

    def connect(self, caller: Hashable) -> Effects:
        """A caller is there; it has no slots yet.

        Raises:
            ValueError: it is there already.
        """
        if caller in self._accounts:
            raise ValueError(f"Caller {caller!r} is connected already.")
        self._accounts[caller] = _Account()
        return []

    def want(self, caller: Hashable, waiting: int) -> Effects:
        """A caller wants so many slots besides those that it has. If it gets none now, it is told so by a scarce grant
        of 0: then it knows that its requests have to wait."""
        account = self._accounts[caller]
        account.waiting = waiting
        if waiting:
            self._wanting.setdefault(caller, account)
        else:
            self._wanting.pop(caller, None)
        effects = self._share()
        if account.waiting and all(to != caller or type(what) is Recall for to, what in effects):
            effects.append((caller, Grant(0, scarce=True)))
        return effects

    def give_back(self, caller: Hashable, slots: int) -> Effects:
        """A caller returns unused slots. It has no use for those that it keeps without a request.

        Raises:
            ValueError: it has not so many.
        """
        account = self._accounts[caller]
        if not 0 <= slots <= account.unused:
            raise ValueError(f"Caller {caller!r} returns {slots} slots and has {account.unused} unused ones.")
        account.lent -= slots
        self.lent -= slots
        account.expected = account.recalled = 0
        return self._share()

    def gone(self, caller: Hashable) -> Effects:
        """A caller is disconnected. Its requests keep their slots until they end."""
        account = self._accounts[caller]
        self._wanting.pop(caller, None)
        self.lent -= account.unused
        account.lent = account.running
        account.expected = account.recalled = 0
        account.gone = True
        if not account.lent:
            del self._accounts[caller]
        return self._share()

    def resize(self, slots: int) -> Effects:
        """From now on there are so many slots. If more are lent, they come back as requests end."""
        self._slots = slots
        return self._share()

    def drain(self) -> Effects:
        """Recalls all slots and grants none any more."""
        self._draining = True
        self._wanting.clear()
        return self._share()

    def begin(self, caller: Hashable) -> bool:
        """A request has come. False if its caller has no slot for it, which is an error of the caller."""
        account = self._accounts.get(caller)
        if account is None or account.gone or account.lent == account.running:
            return False
        account.running += 1
        account.expected = max(0, account.expected - 1)
        self.ongoing += 1
        return True

    def end(self, caller: Hashable) -> tuple[bool, Effects]:
        """A request has ended. Tells whether its caller keeps the slot: if nobody else wants it.

        Raises:
            ValueError: no request of that caller runs.
        """
        account = self._accounts.get(caller)
        if account is None or not account.running:
            raise ValueError(f"No request of caller {caller!r} runs.")
        account.running -= 1
        self.ongoing -= 1
        others_want = len(self._wanting) > (caller in self._wanting)
        if not (others_want or self._draining or account.gone or self.lent > self._slots):
            if account.waiting:
                account.waiting -= 1
                if not account.waiting:
                    del self._wanting[caller]
            return True, []
        account.lent -= 1
        self.lent -= 1
        if account.gone and not account.lent:
            del self._accounts[caller]
        return False, self._share()

    # ------------------------------------------------------------ sharing

    def _share(self) -> Effects:
        """Grants what is free, in turns, and recalls what is needed besides."""
        if self._draining:
            return self._recall(self.lent, among_wanting=True)
        granted: dict[Hashable, int] = {}
        while self._wanting and self.lent < self._slots:
            caller, account = next(iter(self._wanting.items()))
            account.lent += 1
            account.waiting -= 1
            account.expected += 1
            self.lent += 1
            granted[caller] = granted.get(caller, 0) + 1
            if account.waiting:
                self._wanting.move_to_end(caller)
            else:
                del self._wanting[caller]
        scarce = bool(self._wanting)
        effects: Effects = [(caller, Grant(slots, scarce)) for caller, slots in granted.items()]
        if self.lent > self._slots:
            effects += self._recall(self.lent - self._slots, among_wanting=True)
        if scarce:
            effects += self._recall(
                sum(account.waiting for account in self._wanting.values()),
                among_wanting=len(self._wanting) > 1,
            )
        return effects

    def _recall(self, slots: int, among_wanting: bool) -> Effects:
        """Asks the callers with the most unused slots for theirs, until enough are asked for."""
        holders: list[tuple[int, Hashable, _Account]] = []
        for caller, account in self._accounts.items():
            slots -= account.recalled
            spare = account.unused - (0 if self._draining else account.expected)
            if spare > 0 and not account.recalled and (among_wanting or caller not in self._wanting):
                holders.append((spare, caller, account))
        holders.sort(key=lambda holder: -holder[0])
        effects: Effects = []
        for spare, caller, account in holders:
            if slots <= 0:
                break
            account.recalled = spare
            slots -= spare
            effects.append((caller, Recall()))
        return effects


@dataclass(slots=True)
class _Loan:
    """What a borrower has of a replica.

    Attributes:
        hand: slots that no request uses.
        running: own requests there.
        told: how many more slots the replica knows to be wanted.
        wanted_only: requests that wait for this replica, or for it and some others.
        near: on this node.
        slots: how many the replica has.
        full: it has told that no slot is free now.
        retired: it takes no new requests.
        sought: a slot is wanted for requests to come, see `Borrower._seek`.
        missed: how often it had none then, in a row.
        next_seek: by the count of requests, when to try again.
    """

    near: bool
    slots: int
    full: bool = False
    hand: int = 0
    running: int = 0
    told: int = 0
    wanted_only: int = 0
    retired: bool = False
    sought: bool = False
    missed: int = 0
    next_seek: int = 0


class Borrower(Generic[Request]):
    """The slots that one caller has of all replicas of a deployment, and its requests that wait for one.

    Requests are any hashable values. They get slots in the order in which they came, except that one may be restricted
    to some replicas (`allowed`) and is then passed by those which are not.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._loans: dict[str, _Loan] = {}
        self._near: list[str] = []  # replicas with a slot in hand
        self._far: list[str] = []
        self._waiting: OrderedDict[Request, frozenset[str] | None] = OrderedDict()
        self._unrestricted = 0
        self._live: list[str] = []
        self._asked = 0
        self.seeks = False
        """Whether `wants` has something to tell though nothing waits."""

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def requests(self) -> list[Request]:
        """Those that wait, the next one first."""
        return list(self._waiting)

    @property
    def queued(self) -> int:
        """How many requests wait for which no slot is free anywhere, as far as is known: those that wait, less the
        slots that replicas may have which have not told that they are full."""
        possible = sum(
            max(0, loan.slots - loan.running - loan.hand)
            for loan in self._loans.values()
            if not (loan.full or loan.retired)
        )
        return max(0, len(self._waiting) - possible)

    @property
    def replicas(self) -> list[str]:
        """Those that take requests."""
        return [replica for replica, loan in self._loans.items() if not loan.retired]

    def running(self, replica: str) -> int:
        """Own requests at a replica; 0 for an unknown one."""
        loan = self._loans.get(replica)
        return loan.running if loan is not None else 0

    def is_full(self, replica: str) -> bool:
        """Whether a replica has told that it has no slot, or own requests use all."""
        loan = self._loans.get(replica)
        return loan is None or loan.full or loan.running >= loan.slots

    def in_hand(self, replica: str) -> int:
        """Unused slots of a replica; 0 for an unknown one."""
        loan = self._loans.get(replica)
        return loan.hand if loan is not None else 0

    # ------------------------------------------------------------ replicas

    def add(self, replica: str, near: bool, slots: int) -> None:
        """A replica is connected. `slots`: how many it has for all callers.

        Raises:
            ValueError: it is there already.
        """
        if replica in self._loans:
            raise ValueError(f"Replica {replica!r} is there already.")
        loan = self._loans[replica] = _Loan(near, slots)
        loan.wanted_only = sum(
            replica in allowed for allowed in self._waiting.values() if allowed is not None
        )
        self._live.append(replica)

    def resize(self, replica: str, slots: int) -> None:
        """A replica has another number of slots for all callers."""
        loan = self._loans.get(replica)
        if loan is not None:
            loan.slots = slots

    def retire(self, replica: str) -> int:
        """A replica takes no new requests; those that run there go on. Returns how many slots to give back."""
        loan = self._loans.get(replica)
        if loan is None or loan.retired:
            return 0
        loan.retired = True
        self._live.remove(replica)
        return self._empty(replica, loan)

    def restore(self, replica: str) -> None:
        """A retired replica takes new requests again."""
        loan = self._loans.get(replica)
        if loan is not None and loan.retired:
            loan.retired = False
            self._live.append(replica)

    def lost(self, replica: str) -> None:
        """A replica is disconnected, and with it what runs there."""
        loan = self._loans.get(replica)
        if loan is not None:
            self.retire(replica)
            del self._loans[replica]

    # ------------------------------------------------------------ requests

    def ask(
        self, request: Request, allowed: Collection[str] | None = None, first: bool = False
    ) -> str | None:
        """A new request: returns the replica that it is to be sent to at once, else None, and it waits.

        Args:
            allowed: the only replicas for it; None for all.
            first: it goes before all others that wait.

        Raises:
            ValueError: it waits already.
        """
        if request in self._waiting:
            raise ValueError(f"Request {request!r} waits already.")
        # A slot in hand that is of use to the first that waits is never left unused, so nobody is overtaken here.
        self._asked += 1
        replica = self._choose(allowed)
        if replica is not None:
            self._use(replica)
            if allowed is None and len(self._live) > 1:
                self._seek(self._loans[replica])
            return replica
        self._waiting[request] = None if allowed is None else frozenset(allowed)
        if first:
            self._waiting.move_to_end(request, last=False)
        self._count(self._waiting[request], 1)
        return None

    def allow(self, request: Request, allowed: Collection[str] | None) -> str | None:
        """A request that waits may go to other replicas than before, its place in the queue unchanged. Returns where it
        is to be sent at once, or None: it waits, or did not wait any more."""
        if request not in self._waiting:
            return None
        replica = self._choose(allowed)
        if replica is not None:
            self._remove(request)
            self._use(replica)
            return replica
        self._count(self._waiting[request], -1)
        self._waiting[request] = None if allowed is None else frozenset(allowed)
        self._count(self._waiting[request], 1)
        return None

    def forget(self, request: Request) -> bool:
        """A request does not wait any more; False if it did not."""
        if request not in self._waiting:
            return False
        self._remove(request)
        return True

    def clear(self) -> list[Request]:
        """No request waits any more. Returns those that did."""
        requests = list(self._waiting)
        for request in requests:
            self._remove(request)
        return requests

    def ended(self, replica: str, keep: bool) -> Request | None:
        """A request has ended. Returns the one that is to be sent there next with the same slot, if any. `recalled`
        gives back a slot that is kept of a retired replica."""
        loan = self._loans.get(replica)
        if loan is None:
            return None
        loan.running -= 1
        if not keep:
            return None
        loan.full = False
        loan.told = max(0, loan.told - 1)
        self._put(replica, loan, 1)
        return self._next(replica, loan)

    # ------------------------------------------------------------ slots

    def granted(self, replica: str, slots: int, scarce: bool) -> list[Request]:
        """Slots came. Returns the requests that are to be sent there; `surplus` tells what to do about slots that are
        not used then.

        Args:
            scarce: other callers want them, or there are too few.
        """
        loan = self._loans.get(replica)
        if loan is None:
            return []
        loan.full = scarce and loan.told > 0
        if loan.sought:
            loan.sought = False
            loan.missed = 0 if slots else min(loan.missed + 1, 6)
            loan.next_seek = self._asked + (FIRST_PAUSE << loan.missed if loan.missed else 0)
        loan.told = max(0, loan.told - slots)
        self._put(replica, loan, slots)
        sent: list[Request] = []
        while (request := self._next(replica, loan)) is not None:
            sent.append(request)
        return sent

    def surplus(self, replica: str, scarce: bool) -> int | None:
        """What to return of slots after `granted`: None for nothing to say, 0 to tell that some stay here unused, else
        how many.

        Args:
            scarce: other callers want them.
        """
        loan = self._loans.get(replica)
        if loan is None or not loan.hand:
            return None
        return self._empty(replica, loan) if scarce or loan.retired else 0

    def recalled(self, replica: str) -> int:
        """The replica wants unused slots back. Returns how many, maybe 0."""
        loan = self._loans.get(replica)
        return self._empty(replica, loan) if loan is not None else 0

    def wants(self) -> list[tuple[str, int]]:
        """Which replicas are to be told (`Want`) how many slots are wanted, by what has changed since.

        What waits for any replica is divided among all. Each is asked for one at least, so that a free slot anywhere
        is found; a replica hears of a lower number only when it is 0.
        """
        changed: list[tuple[str, int]] = []
        self.seeks = False
        share = -(-self._unrestricted // len(self._live)) if self._live else 0
        for replica, loan in self._loans.items():
            wanted = 0 if loan.retired else share + loan.wanted_only or int(loan.sought)
            if wanted > loan.told or (not wanted and loan.told):
                loan.told = wanted
                loan.full = loan.full and wanted > 0
                changed.append((replica, wanted))
        return changed

    # ------------------------------------------------------------ inside

    def _choose(self, allowed: Collection[str] | None) -> str | None:
        for ready in (self._near, self._far):
            if allowed is not None:
                ready = [replica for replica in ready if replica in allowed]
            if len(ready) > 1:
                one, two = self._random.sample(ready, 2)
                return one if self._loans[one].running <= self._loans[two].running else two
            if ready:
                return ready[0]
        return None

    def _seek(self, chosen: _Loan) -> None:
        """Wants a slot of another replica for requests to come, if that has fewer own requests than the one which was
        chosen and no slot in hand. Else a new replica would get no request while slots of the old ones suffice."""
        other = self._loans[self._random.choice(self._live)]
        if (
            other.running < chosen.running
            and not (other.hand or other.told or other.sought)
            and (other.near or not chosen.near)
            and self._asked >= other.next_seek
        ):
            other.sought = self.seeks = True

    def _use(self, replica: str) -> None:
        loan = self._loans[replica]
        loan.hand -= 1
        loan.running += 1
        if not loan.hand:
            (self._near if loan.near else self._far).remove(replica)

    def _put(self, replica: str, loan: _Loan, slots: int) -> None:
        if slots and not loan.hand and not loan.retired:
            (self._near if loan.near else self._far).append(replica)
        loan.hand += slots

    def _empty(self, replica: str, loan: _Loan) -> int:
        slots, loan.hand = loan.hand, 0
        ready = self._near if loan.near else self._far
        if slots and replica in ready:
            ready.remove(replica)
        return slots

    def _next(self, replica: str, loan: _Loan) -> Request | None:
        if not loan.hand or loan.retired:
            return None
        for request, allowed in self._waiting.items():
            if allowed is None or replica in allowed:
                self._remove(request)
                self._use(replica)
                return request
        return None

    def _remove(self, request: Request) -> None:
        self._count(self._waiting.pop(request), -1)

    def _count(self, allowed: frozenset[str] | None, change: int) -> None:
        if allowed is None:
            self._unrestricted += change
            return
        for replica in allowed:
            loan = self._loans.get(replica)
            if loan is not None:
                loan.wanted_only += change
