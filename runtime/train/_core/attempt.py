"""One call of the training function on all ranks: who runs it, and what has come of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from runtime._controllers.controller import Call, Effect, Key, Sleep, Wait
from runtime.exceptions import ActorDiedError, RayActorError

from .limits import LEAVE_S, STACKS_S
from .ranks import Place
from .records import Message, Wanted
from .reports import Ledger
from .states import STARTING, State
from .table import RankView, RunView

WAITED_FOR = 4
"""Ranks that are named as those which others wait for."""


class Inbox:
    """The batches of records of one rank, in order. Large ones are fetched, and may come after those behind them."""

    def __init__(self) -> None:
        self._announced = 0
        self._taken = 0
        self._there: dict[int, bytes] = {}
        self._is_broken = False
        self._end: tuple[BaseException | None] | None = None

    def announce(self) -> None:
        """The next batch will come."""
        self._announced += 1

    def arrive(self, index: int, batch: bytes) -> None:
        """A batch is there."""
        self._there[index] = batch

    def lose(self, index: int) -> None:
        """A batch will never come. Those behind it do not count: they would be taken for earlier ones."""
        self._there[index] = b""

    def end(self, error: BaseException | None) -> None:
        """No more batches are announced. `error`: of the function; None: it has ended in order."""
        self._end = (error,)

    def take(self) -> Iterator[tuple[int, bytes]]:
        """The batches whose turn it is, with their indices. b"": it does not count."""
        while self._taken in self._there:
            index = self._taken
            batch = self._there.pop(index)
            self._taken += 1
            self._is_broken = self._is_broken or not batch
            yield index, b"" if self._is_broken else batch

    def take_end(self) -> tuple[BaseException | None] | None:
        """What `end` was told, once all batches are taken; then None."""
        if self._taken < self._announced:
            return None
        end, self._end = self._end, None
        return end


class Attempt:
    """One call of the training function on all ranks.

    Args:
        number: from 1.
        places: by rank.
        workers: by rank.
        restarts: how often the workers' processes had been replaced when it began, by rank.
        missing: what it needs before it can start: "rendezvous", "shards".
        nodes: the ids of the ranks' nodes.
    """

    def __init__(
        self,
        number: int = 0,
        places: Sequence[Place] = (),
        workers: Sequence[Key] = (),
        restarts: Sequence[int] = (),
        missing: Sequence[str] = (),
        nodes: Sequence[str] = (),
    ) -> None:
        self.number = number
        self.places = places
        self.workers = workers
        self.restarts = restarts
        self.nodes = nodes or [""] * len(places)
        self.gathered: dict[str, object] = dict.fromkeys(missing)
        self.missing = set(missing)
        self.is_preparing = bool(number)
        self.has_begun = False
        """The training function was called."""
        self.is_leaving = False
        self.committed = 0
        """How many of its reports are committed."""
        self.active: set[int] = set()
        """Ranks whose training function has not ended, or whose records are not all there."""
        self.joined = 0
        """How many ranks are connected with the others."""
        self.returned: dict[int, bytes] = {}
        self.errors: dict[int, BaseException] = {}
        self.untold_failures: int | None = None
        """The number of failures with this attempt's, if the keeper was not told of it yet."""
        self.is_ended = False
        """The processes of ranks that had not left were ended."""
        self._ends: dict[int, str] = {}  # why processes have ended
        self.ledger = Ledger(len(places))
        self.pids: dict[int, int] = {}
        self.inboxes = [Inbox() for _ in places]
        self.wanted: list[tuple[int, Wanted]] = []
        self.stalled = ""
        """Why the stacks of the ranks are wanted; "": they are not."""
        self.stacks: dict[int, str] = {}
        self._since: dict[
            int, float
        ] = {}  # when a rank began to wait for others, and the last report was complete
        self._completed = 0
        self._told = 0  # messages

    def tell(self, rank: int, message: Message) -> Call:
        """Has a rank get a message."""
        self._told += 1
        key = ("tell", self.number, rank, self._told)
        return Call(key, self.workers[rank], "tell", (self.number, message))

    def leave(self) -> list[Effect]:
        """Has all ranks leave the training function."""
        if self.is_leaving:
            return []
        self.is_leaving, self.is_preparing = True, False
        number = self.number
        effects: list[Effect] = [Sleep(("leave", number), LEAVE_S)] if self.active else []
        for rank in sorted(self.active):
            effects.append(Call(("leave", number, rank), self.workers[rank], "leave", (number,)))
        return effects

    def ask_for_stacks(self, what: str) -> list[Effect]:
        """Asks all ranks where they are, since a wait takes too long."""
        self.stalled = what
        effects: list[Effect] = [Sleep(("stacks", self.number), STACKS_S)]
        for rank in sorted(self.active):
            effects.append(Call(("stack", self.number, rank), self.workers[rank], "stack", fetch=True))
        return effects

    def process_ended(self, worker: Key, reason: str) -> None:
        """The process of a worker has ended, and the cluster knows why."""
        if worker in self.workers and not self.is_ended:
            rank = self.workers.index(worker)
            self._ends.setdefault(rank, reason)
            self._explain(rank)

    def failed(self, rank: int, error: BaseException) -> None:
        """A rank has failed. The first error of each counts."""
        self.errors.setdefault(rank, error)
        self._explain(rank)

    @property
    def is_explained(self) -> bool:
        """Whether it is known why processes have ended."""
        return all(
            rank in self._ends for rank, error in self.errors.items() if isinstance(error, RayActorError)
        )

    def _explain(self, rank: int) -> None:
        if rank in self._ends and isinstance(self.errors.get(rank), RayActorError):
            self.errors[rank] = ActorDiedError(ended(self._ends[rank]))

    def has(self, what: str, value: object) -> None:
        """Something that was missing is there."""
        self.gathered[what] = value
        self.missing.discard(what)

    @property
    def has_joined(self) -> bool:
        """Whether all ranks are connected with each other."""
        return self.joined == len(self.places)

    def ranks(self) -> list[RankView]:
        """The ranks as people see them."""
        waiting, counts = self.ledger.waiting(), self.ledger.counts
        found = []
        for place in self.places:
            rank = place.rank
            if rank in self.errors:
                state = "failed"
            elif rank in self.returned:
                state = "returned"
            elif rank not in self.active:
                state = "starts" if self.is_preparing else "ended"
            elif self.is_leaving:
                state = "leaves"
            elif rank in waiting:
                state = f"waits for {', '.join(map(str, sorted(waiting[rank])[:WAITED_FOR]))}"
            else:
                state = "trains" if rank in self.pids else "joins"
            found.append(RankView(rank, self.nodes[rank], self.pids.get(rank, 0), state, counts[rank]))
        return found

    def view(self, state: State, failures: int, spent_s: Mapping[State, float]) -> RunView:
        """The run as people see it.

        Args:
            state: of the controller.
            failures: so far.
            spent_s: seconds in states that the controller has left.
        """
        starting_s = sum(spent_s[each] for each in STARTING)
        ending_s = spent_s[State.SHUTTING_DOWN]
        return RunView(state.value, self.number, failures, self.committed, starting_s, ending_s, self.ranks())

    def want(self, rank: int, wanted: Wanted) -> None:
        """A rank wants a list."""
        self.wanted = [each for each in self.wanted if (each[0], each[1].number) != (rank, wanted.number)]
        self.wanted.append((rank, wanted))

    def take_wanted(self, are_validated: bool) -> list[tuple[int, Wanted]]:
        """The lists that ranks want and can have now.

        Args:
            are_validated: no validation is pending.
        """
        ready = [
            each
            for each in self.wanted
            if each[1].after <= self.committed and (are_validated or not each[1].is_validated)
        ]
        self.wanted = [each for each in self.wanted if each not in ready]
        return ready

    def note_waits(self, now: float) -> None:
        """Remembers since when ranks wait for others."""
        if self.ledger.completed != self._completed:
            self._completed = self.ledger.completed
            self._since.clear()
        self._since = {rank: self._since.get(rank, now) for rank in self.ledger.waiting()}

    def waits(self, since_s: float, stall_s: float | None) -> list[Wait]:
        """What a running attempt waits for.

        Args:
            since_s: when it began.
            stall_s: how long a rank may wait for others.
        """
        waits = []
        for rank, others in self.ledger.waiting().items():
            names = ", ".join(map(str, sorted(others)))
            what = f"rank {rank} waits for rank {names} to call report(), or the same collective function"
            waits.append(Wait(("rank", rank), what, self._since.get(rank, since_s), stall_s))
        for rank in sorted(self.active):
            waits.append(Wait(("train", rank), f"the training function on rank {rank}", since_s))
        return waits

    def stall(self, limit_s: float | None) -> str:
        """What an error says about ranks that wait for too long."""
        stacks = "\n".join(f"Rank {rank}:\n{text}" for rank, text in sorted(self.stacks.items()))
        limit = f"{limit_s:g} s" if limit_s is not None else "a while"
        return f"Nothing went on for {limit}: {self.stalled}.\n{stacks}"

    def preparations(self, since_s: float) -> list[Wait]:
        """What an attempt that has not started waits for."""
        texts: Mapping[str, str] = {
            "rendezvous": "rank 0 to say where the ranks meet",
            "shards": "the data sets to be divided",
        }
        missing = sorted(self.missing) if self.is_preparing else []
        return [Wait(what, texts[what], since_s) for what in missing]

    def leaves(self, since_s: float) -> list[Wait]:
        """Ranks that are to leave the training function."""
        return [
            Wait(("leaves", rank), f"rank {rank} to leave the training function", since_s)
            for rank in sorted(self.active)
        ]


def ended(reason: str) -> str:
    """A sentence of a process that has ended.

    Args:
        reason: as the cluster gives it.
    """
    _, _, exit_reason = reason.rpartition("Worker unexpectedly exits: ")
    exit_reason = exit_reason.rstrip(".")
    if exit_reason.startswith("killed"):
        return f"Its process was {exit_reason}."
    if exit_reason.startswith("exit code"):
        return f"Its process ended with {exit_reason}."
    return f"Its process has ended: {exit_reason}."
