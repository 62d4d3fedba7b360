"""How the members of a group find each other, and how values get from one to another.

Every member has a channel that all others read. Its address is a record in the control store until all have opened it;
members wait there for each other's record. A channel for one other member is made when something is first sent to that
member alone.

A process that ends, closes its ends. Its peers' channels fail then, and say so to all who read them, so that every
member knows at once, whomever it waits for. Until all channels are open, members watch each other's actors and look at
the channels of those who have come: of the end of a task's or driver's process the control store tells nobody.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from runtime._extension import channels
from runtime._extension.events import Subscription
from runtime._extension.news import ActorChanged, ActorState, KeyChanged, News
from runtime.experimental import internal_kv

from .plan import MAX_AHEAD, others
from .types import GroupError, MemberLostError

NAMESPACE = "collective groups"
OPEN_TIMEOUT_S = 5.0
"""How long the process of a task or driver may take to answer a member that joins."""
LOOK_S = 0.05
"""How often members that wait for others look whether those that have come still run."""


class Record(NamedTuple):
    """What a member tells the others.

    Attributes:
        world_size: as it was told.
        address: of the channel that all others read; None: it is alone.
        who: its process.
    """

    world_size: int
    address: channels.ChannelAddress | None
    who: Who


class Who(NamedTuple):
    """A member's process.

    Attributes:
        actor_id: in hex; "" if it is no actor's.
        text: actor or task, process and node, for errors.
    """

    actor_id: str
    text: str


_UNKNOWN = Who("", "")


class Links:
    """One member's channels.

    Attributes:
        timeout_s: how long to wait for other members, each time.
        is_spread: whether members are on several nodes; known once all are connected.
        is_connected: whether all members have come.
        on_failure: called once the group has failed, from any thread.

    Args:
        name: of the group, for errors.
        key: of the group in the control store.
        world_size: the number of members.
        rank: this one.
        who: this process.
        declared: the actors of the members by rank, in hex, where they are known before they join.
        timeout_s: see above.

    Raises:
        OSError: no memory, descriptors or sockets.
        GetTimeoutError, RaySystemError: the control store cannot be reached.
    """

    def __init__(
        self,
        name: str,
        key: str,
        world_size: int,
        rank: int,
        who: Who,
        declared: Mapping[int, str],
        timeout_s: float,
    ) -> None:
        self.timeout_s = timeout_s
        self.is_spread = False
        self.on_failure: Callable[[], None] = _nothing
        self._name = name
        self._key = key
        self._world_size = world_size
        self._rank = rank
        self._peers = others(world_size, rank)
        self._who: dict[int, Who] = {peer: Who(actor_id, "") for peer, actor_id in declared.items()}
        self._who[rank] = who
        self.is_connected = False
        self._is_closed = False
        self._error: channels.ChannelError | None = None
        self._lock = threading.Lock()
        self._subscription: Subscription | None = None
        self._readers: dict[int, channels.Reader] = {}
        self._own_readers: dict[int, channels.Reader] = {}
        self._own_writers: dict[int, channels.Writer] = {}
        self._greeted: set[int] = set()
        self._writer: channels.Writer | None = None
        if self._peers:
            self._writer = self._made(self._peers, on_failure=self._failed)
        self._stale = self._find_stale()  # opens channels
        self._record = pickle.dumps(Record(world_size, self._writer.address if self._writer else None, who))
        internal_kv._internal_kv_put(self._record_key(rank), self._record, namespace=NAMESPACE)

    def _made(
        self, readers: Sequence[int], on_failure: Callable[[channels.ChannelError], None] | None = None
    ) -> channels.Writer:
        return channels.create(
            f"collective group {self._name}",
            [_end(peer) for peer in readers],
            MAX_AHEAD,
            writer=_end(self._rank),
            on_failure=on_failure,
        )

    def _record_key(self, rank: int) -> str:
        return f"{self._key}:{rank}"

    # ------------------------------------------------------------ forming the group

    def _find_stale(self) -> set[bytes]:
        """The records that former groups of the name have left: their processes are dead already. Those of actors are
        known to the control store; the channels of others are opened, which also tells when they end from now on."""
        if not self._peers:
            return set()
        keys = {self._record_key(peer).encode() for peer in self._peers}
        present = keys.intersection(internal_kv._internal_kv_list(f"{self._key}:", namespace=NAMESPACE))
        records: dict[str, bytes] = {}  # by actor
        stale: set[bytes] = set()
        for key in present:
            found = internal_kv._internal_kv_get(key, namespace=NAMESPACE)
            if found is None:
                continue
            if actor_id := _loaded(found).who.actor_id:
                records[actor_id] = found
            elif not self._open(int(key.rpartition(b":")[2]), found, OPEN_TIMEOUT_S):
                stale.add(found)
        if not records:
            return stale
        with Subscription() as subscription:
            for actor_id in records:
                subscription.watch_actor(bytes.fromhex(actor_id))
            deadline = time.monotonic() + self.timeout_s
            while records and (left := deadline - time.monotonic()) > 0:
                for news in subscription.take(left):
                    if isinstance(news, ActorChanged):
                        found = records.pop(news.actor_id, b"")
                        if news.state in (ActorState.DEAD, ActorState.RESTARTING):
                            stale.add(found)
        return stale

    def connect(self) -> None:
        """Waits for all members, the first time. May be called again after a timeout.

        Raises:
            TimeoutError: not all came.
            GroupError: the group was destroyed, or a member is gone: one that had come, or a declared one.
        """
        if self.is_connected:
            return
        with Subscription() as subscription:
            with self._lock:
                self._subscription = subscription
            try:
                self._open_all(subscription)
                subscription.call(self._told)
                self._greet_all()
            except MemberLostError as error:
                self._fail_all(error)
                raise
            finally:
                with self._lock:
                    self._subscription = None
        self.is_connected = True
        self._forget_record()

    def _open_all(self, subscription: Subscription) -> None:
        deadline = time.monotonic() + self.timeout_s
        self._check_readers(is_beginning=True)
        missing = {self._record_key(peer): peer for peer in self._peers if peer not in self._readers}
        for peer, who in list(self._who.items()):
            self._watch(subscription, peer, who)
        for key in missing:
            subscription.watch_key(key.encode(), NAMESPACE)
        while missing:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"Ranks {sorted(missing.values())} did not join the collective group '{self._name}' within "
                    f"{self.timeout_s:g} s."
                )
            self.check()
            self._check_readers()
            for news in subscription.take(min(left, LOOK_S)):
                if isinstance(news, ActorChanged):
                    self._check_actor(news)
                elif isinstance(news, KeyChanged) and news.value is not None:
                    key = news.key.decode()
                    if key in missing and news.value not in self._stale:
                        peer = missing[key]
                        known = self._who.get(peer, _UNKNOWN).actor_id
                        is_there = self._open(peer, news.value, self.timeout_s)
                        who = self._who.get(peer, _UNKNOWN)
                        if who.actor_id != known:
                            self._watch(subscription, peer, who)
                        if not is_there and not who.actor_id:
                            raise MemberLostError(self._name, peer, who.text)
                        if peer in self._readers:
                            del missing[key]
        self.check()

    def _open(self, peer: int, found: bytes, timeout_s: float) -> bool:
        """Opens the channel of a member that has come, unless it has left again. False: its process has ended."""
        record = _loaded(found)
        if record.world_size != self._world_size or record.address is None:
            return True
        with self._lock:
            self._who[peer] = record.who
        try:
            reader = channels.open_reader(record.address, _end(self._rank), timeout_s=timeout_s)
        except channels.PeerLostError:
            return False
        except channels.ChannelError:
            return True  # it may come again
        with self._lock:
            self._readers[peer] = reader
        return True

    def _check_readers(self, is_beginning: bool = False) -> None:
        """Raises what has become of members that have come. The control store tells it of actors only.

        Args:
            is_beginning: members that have left since this one joined may come again.
        """
        for peer, reader in list(self._readers.items()):
            error = reader.ended()
            if isinstance(error, channels.ChannelClosedError):
                if is_beginning:
                    with self._lock:
                        del self._readers[peer]
                    reader.close()
            elif error is not None:
                raise self._translated(error)

    def _watch(self, subscription: Subscription, peer: int, who: Who) -> None:
        if who.actor_id and peer != self._rank:
            subscription.watch_actor(bytes.fromhex(who.actor_id))

    def _check_actor(self, news: ActorChanged) -> None:
        """Raises MemberLostError if a process that had joined is gone, or nobody will ever join."""
        for peer, who in self._who.items():
            is_gone = news.state is ActorState.DEAD or (who.text and news.state is ActorState.RESTARTING)
            if who.actor_id == news.actor_id and peer != self._rank and is_gone:
                text = who.text or f"the actor {news.actor_id}, before it joined: {news.reason}"
                raise MemberLostError(self._name, peer, text)

    def _told(self, told: Sequence[News]) -> None:
        """An actor has changed while members wait for each other's greetings. In a thread of the engine."""
        for news in told:
            if isinstance(news, ActorChanged):
                try:
                    self._check_actor(news)
                except MemberLostError as error:
                    self._fail_all(error)

    def _fail_all(self, error: MemberLostError) -> None:
        with self._lock:
            ends = [*self._readers.values()]
        self.fail(error)
        for end in ends:
            end.fail(error)

    def _greet_all(self) -> None:
        """Whoever says something has opened all channels, so nobody needs this member's record after that."""
        if self._writer is None:
            return
        nodes = {reader.address.node_id for reader in self._readers.values()}
        self.is_spread = nodes != {self._writer.address.node_id}
        if not self._greeted:
            self._greeted.add(self._rank)
            self.share(channels.dump_plain(None))
        for peer in self._peers:
            if peer not in self._greeted:
                self.take(peer)
                self._greeted.add(peer)

    def _forget_record(self) -> None:
        key = self._record_key(self._rank)
        if internal_kv._internal_kv_get(key, namespace=NAMESPACE) == self._record:
            internal_kv._internal_kv_del(key, namespace=NAMESPACE)

    # ------------------------------------------------------------ values

    def share(self, value: channels.Pickled) -> None:
        """Writes a value for all other members.

        Raises:
            TimeoutError, GroupError: see `_translated`.
        """
        if self._writer is not None:
            self._put(self._writer, value)

    def send(self, peer: int, value: channels.Pickled) -> None:
        """Writes a value for one member.

        Raises:
            TimeoutError, GroupError: see `_translated`.
        """
        writer = self._own_writers.get(peer)
        if writer is None:
            writer = self._made([peer])
            with self._lock:
                self._own_writers[peer] = writer
            self.check()
            internal_kv._internal_kv_put(
                self._own_key(self._rank, peer), pickle.dumps(writer.address), namespace=NAMESPACE
            )
        self._put(writer, value)

    def take(self, peer: int, is_sent: bool = False) -> Any:
        """The next value that a member shared, or sent to this one. Large arrays in it lie in shared memory.

        Raises:
            TimeoutError, GroupError: see `_translated`.
        """
        reader = self._readers[peer]
        if is_sent:
            reader = self._own_readers.get(peer) or self._opened_own(peer)
        try:
            return reader.take(self.timeout_s)
        except channels.ChannelError as error:
            raise self._translated(error) from error

    @property
    def host(self) -> str:
        """This node's address."""
        assert self._writer is not None
        return self._writer.address.host

    def host_of(self, peer: int) -> str:
        """The address of a member's node."""
        return self._readers[peer].address.host

    def rank_of(self, actor_id: str) -> int | None:
        """The rank of an actor that is known as a member."""
        return next((rank for rank, who in list(self._who.items()) if who.actor_id == actor_id), None)

    def silent(self) -> list[int]:
        """The members of whom nothing has come that is not taken."""
        return [peer for peer in self._peers if not self._readers[peer].available]

    def _put(self, writer: channels.Writer, value: channels.Pickled) -> None:
        try:
            writer.write(value, self.timeout_s)
        except channels.ChannelError as error:
            raise self._translated(error) from error

    def _own_key(self, writer: int, reader: int) -> str:
        """Of the address of a channel for one. With the id of the writer's other channel, so that nobody finds that of
        a former group."""
        channel = self._writer if writer == self._rank else self._readers[writer]
        assert channel is not None
        return f"{self._key}:{channel.address.channel_id.hex()}:{reader}"

    def _opened_own(self, peer: int) -> channels.Reader:
        key = self._own_key(peer, self._rank)
        found = self._value(key)
        if found is None:
            raise TimeoutError(f"Rank {peer} sent nothing within {self.timeout_s:g} s.")
        try:
            reader = channels.open_reader(pickle.loads(found), _end(self._rank), timeout_s=self.timeout_s)
        except channels.ChannelError as error:
            raise self._translated(error) from error
        with self._lock:
            self._own_readers[peer] = reader
        internal_kv._internal_kv_del(key, namespace=NAMESPACE)
        self.check()
        return reader

    def _value(self, key: str) -> bytes | None:
        """The value of a key of the control store; None: it had none in time."""
        with Subscription() as subscription:
            with self._lock:
                self._subscription = subscription
            try:
                subscription.watch_key(key.encode(), NAMESPACE)
                deadline = time.monotonic() + self.timeout_s
                while (left := deadline - time.monotonic()) > 0:
                    self.check()
                    for news in subscription.take(left):
                        if isinstance(news, KeyChanged) and news.value is not None:
                            return news.value
            finally:
                with self._lock:
                    self._subscription = None
        self.check()
        return None

    # ------------------------------------------------------------ the end

    def fail(self, cause: BaseException) -> None:
        """Ends the group for all members; they get the cause."""
        if self._writer is not None:
            self._writer.fail(cause)

    def close(self) -> None:
        """Leaves the group. What was written stays for the others to take; waits in this process end. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._wake()
            self.on_failure()
            readers = [*self._readers.values(), *self._own_readers.values()]
            writers = list(self._own_writers.values())
        if self._writer is not None:
            self._writer.close()
        for writer in writers:
            writer.close()
        for reader in readers:
            reader.close()
        if not self.is_connected:
            self._forget_record()

    def _failed(self, error: channels.ChannelError) -> None:
        """The channel to all others has failed. Waits for single members end, too. In a thread of the channels."""
        if isinstance(error, channels.ChannelClosedError):
            return  # a member has left: the others may go on sending to each other
        with self._lock:
            self._error = error
            self._wake()
            readers, writers = list(self._own_readers.values()), list(self._own_writers.values())
        for writer in writers:
            writer.fail(error)
        for reader in readers:
            reader.close()
        self.on_failure()

    def _wake(self) -> None:
        """Ends a wait for the control store. Under the lock."""
        if self._subscription is not None:
            self._subscription.close()

    def check(self) -> None:
        """Raises GroupError if the group has failed or was destroyed here."""
        if self._is_closed or self._error is not None:
            raise self._translated(self._error)

    def _translated(self, error: channels.ChannelError | None) -> Exception:
        """What the error of a channel means for the group: TimeoutError, MemberLostError or GroupError."""
        if self._is_closed:
            return GroupError(f"The collective group '{self._name}' was destroyed in this process.")
        if isinstance(error, channels.ChannelClosedError) and self._error is not None:
            error = self._error  # `_failed` has closed the channel
        if isinstance(error, channels.ChannelTimeoutError):
            return TimeoutError(str(error))
        if isinstance(error, channels.PeerLostError):
            rank = _rank(error.peer)
            who = self._who.get(rank)
            return MemberLostError(self._name, rank, who.text if who is not None else "its process ended")
        if isinstance(error, channels.ChannelFailedError):
            if isinstance(error.cause, MemberLostError):
                return error.cause
            return GroupError(f"The collective group '{self._name}' failed at {error.by}: {error.cause}")
        return GroupError(f"A member has left the collective group '{self._name}': {error}")


def who_am_i(context: Any, host: str) -> Who:
    """This process as the other members know it.

    Args:
        context: the runtime context.
        host: address of the node.
    """
    actor_id, name = context.get_actor_id(), context.get_task_name() or ""
    what = "a driver"
    if actor_id:
        what = f"the actor {name.partition('.')[0]} {actor_id}"
    elif name:
        what = f"the task {name}"
    return Who(actor_id or "", f"{what} (pid {os.getpid()} on {host})")


def _loaded(found: bytes) -> Record:
    record: Record = pickle.loads(found)
    return record


def _nothing() -> None:
    pass


def _end(rank: int) -> str:
    return f"rank {rank}"


def _rank(end: str) -> int:
    return int(end.removeprefix("rank "))
