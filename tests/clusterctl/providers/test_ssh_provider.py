"""One's own machines: what is theirs alone. What every provider must do is in tests/contract."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import pytest

from autoscaler.provider import (
    Auth,
    Capacity,
    CommandResult,
    Config,
    LaunchRequest,
    LaunchResult,
    MachineTags,
    NodeType,
    NotFound,
    Offer,
    Transient,
)
from clusterctl.providers.protocol import Seat
from clusterctl.providers.ssh import asking
from clusterctl.providers.ssh import provider as module
from clusterctl.providers.ssh.provider import SshMachines
from clusterctl.providers.ssh.silence import Silences
from clusterctl.shell.connections import CONNECTIONS
from clusterctl.shell.ssh import SshShell
from clusterctl.spec.load import load_text
from clusterctl.sync.transfer import pull
from tests.polling import eventually
from tests.testbed.hosts import Host
from tests.testbed.sshd import BARE, USER, SshTestbed, connections, missing, new_key, sessions

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there can be hosts here")
WORKER = NodeType("w", max_workers=9)
Make = Callable[..., SshMachines]


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshTestbed]:
    with SshTestbed(3, tmp_path_factory.mktemp("bed"), hidden=BARE) as bed, bed.inside():
        yield bed


@pytest.fixture
def make(bed: SshTestbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Providers of clusters: the first host is the head's."""
    made = []
    monkeypatch.setattr(asking, "SILENCES", Silences())

    def make(
        cluster: str = "one",
        owner: str = "me",
        key: Path = bed.key_file,
        only: int | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
        seat: Seat = Seat.OPERATOR,
        **provider: str,
    ) -> SshMachines:
        head, *workers = (host.address for host in bed.hosts[:only])
        more = "".join(f", {name}: {value}" for name, value in provider.items())
        spec = load_text(
            f"cluster_name: name\nprovider: {{type: ssh, head: {head}, workers: [{', '.join(workers)}]{more}}}\n"
            f"auth: {{ssh_user: {USER}, ssh_private_key: {key}}}\n"
        )
        provider = SshMachines(
            spec, cluster, {"owner": owner, "folder": str(tmp_path / cluster), **settings}, seat
        )
        if seat is Seat.OPERATOR:  # a head would end what runs on its machine, this one, and wait for that
            made.append(provider)
        return provider

    yield make
    monkeypatch.setattr(asking, "SILENCES", Silences())
    for provider in made:
        with contextlib.suppress(Auth):
            provider.terminate([machine.id for machine in provider.list()])
            provider.cleanup()
    CONNECTIONS.close_all()


def create(
    provider: SshMachines, *names: str, kind: NodeType = WORKER, role: str = MachineTags.WORKER
) -> LaunchResult:
    tags = {MachineTags.CLUSTER_NAME: "name", MachineTags.ROLE: role}
    return provider.create(LaunchRequest("t".join(names), kind, len(names), Offer(), tags, names))


def left_on(host: Host) -> str:
    """What the user has there, beyond what a host begins with."""
    return host.run(
        ["sh", "-c", f"ls -A /home/{USER} | grep -v '^.bash\\|.profile\\|.ssh'; ls -A /tmp; true"]
    )


def test_machines_are_taken_in_the_specs_order_and_then_there_are_none(bed: SshTestbed, make: Make) -> None:
    provider = make()
    (head,) = create(provider, "h", role=MachineTags.HEAD).machines
    assert head.address == head.public_address == bed.hosts[0].address
    result = create(provider, "a", "b", "c")
    assert [machine.address for machine in result.machines] == [host.address for host in bed.hosts[1:]]
    (error,) = result.errors
    assert isinstance(error, Capacity)
    assert f"{bed.hosts[1].address} was taken" not in str(error)


def test_a_second_cluster_cannot_take_a_machine(bed: SshTestbed, make: Make) -> None:
    one, two = make("one"), make("two")
    create(one, "a")
    result = create(two, "b", "c")
    assert [machine.address for machine in result.machines] == [bed.hosts[2].address]
    assert "belongs to cluster 'name'" in str(result.errors[0])
    assert isinstance(two.terminate([one.list()[0].id])[one.list()[0].id], NotFound)
    assert [machine.instance_id for machine in one.list()] == ["a"]
    theirs = make("three", owner="you")
    assert any("belongs to cluster" in problem.what for problem in theirs.check([WORKER]))


def test_of_clusters_that_reach_for_the_same_machines_at_once_each_machine_has_one(
    bed: SshTestbed, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unlocked:
        __enter__ = __exit__ = lambda *_: None

    monkeypatch.setattr(module, "_CREATING", Unlocked())  # as if they were other processes
    clusters = [make(f"c{number}") for number in range(4)]
    results: dict[str, LaunchResult] = {}

    def reach(cluster: SshMachines) -> None:
        results[cluster._cluster_id] = create(cluster, f"{cluster._cluster_id}-1", f"{cluster._cluster_id}-2")

    threads = [threading.Thread(target=reach, args=(cluster,)) for cluster in clusters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = {name: {machine.id for machine in result.machines} for name, result in results.items()}
    assert sum(len(ids) for ids in got.values()) == 2
    for cluster in clusters:
        assert {machine.id for machine in cluster.list()} == got[cluster._cluster_id]


def test_what_is_given_back_is_as_it_was(bed: SshTestbed, make: Make) -> None:
    provider = make()
    host = bed.hosts[1]
    keys = f"/home/{USER}/.ssh/authorized_keys"
    state = ["sh", "-c", f"stat -c '%a %U' {keys}; cat {keys}"]
    before = host.run(state)
    make("interrupted before").prepare([WORKER])
    provider.prepare([WORKER])
    provider.prepare([WORKER])
    assert host.run(["cat", keys]).count("clusterctl:me:name") == 1
    (machine,) = create(provider, "a").machines
    shell = provider.shell(machine)
    shell.run("setsid sleep 300 >/dev/null 2>&1 & touch ~/.clusterctl-node/x $CLUSTERCTL_SESSION_DIR/y")
    assert left_on(host)
    assert provider.terminate([machine.id]) == {machine.id: None}
    assert provider.list() == []
    assert isinstance(provider.terminate([machine.id])[machine.id], NotFound)
    assert left_on(host) == ""
    assert host.run(["sh", "-c", "pgrep sleep -u op || echo none"]) == "none\n"
    provider.cleanup()
    assert host.run(state) == before
    (again,) = create(provider, "a").machines
    assert again.id != machine.id


def test_nothing_runs_on_a_machine_that_was_given_back(bed: SshTestbed, make: Make) -> None:
    """A set-up may be under way meanwhile."""
    provider = make()
    (machine,) = create(provider, "a").machines
    shell = provider.shell(machine)
    assert shell.run("echo runs; exit 3") == CommandResult(3, "runs\n")
    assert provider.terminate([machine.id]) == {machine.id: None}
    result = shell.run("mkdir -p ~/.clusterctl-node/runtime")
    assert (result.exit_status, result.output) == (44, f"machine {machine.id} was given back\n")
    assert shell.run("cat > ~/.clusterctl-node/secret", stdin=[b"x"]).exit_status == 44
    assert provider.list() == []
    with pytest.raises(NotFound, match="was given back"):
        provider.shell(machine)
    create(make("two"), "b")
    assert shell.run("true").exit_status == 44


def test_a_machine_that_does_not_answer_is_still_listed(
    bed: SshTestbed, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_ANSWER_S", 1.0)
    provider = make()
    create(provider, "a", "b")
    host = bed.hosts[1]
    CONNECTIONS.close_all()
    with bed.mute(host):
        listed = {
            machine.instance_id: machine for machine in make().list()
        }  # another process of the operator
        assert "does not answer" in listed["a"].unreachable
        assert not listed["b"].unreachable
        answers = provider.terminate([machine.id for machine in listed.values()])
        assert isinstance(answers[listed["a"].id], Transient)
        assert answers[listed["b"].id] is None
        assert [machine.instance_id for machine in provider.list()] == ["a"]
        (problem,) = provider.check([WORKER])
        assert not problem.fatal
        assert create(provider, "c").machines[0].address == bed.hosts[2].address
    assert eventually(lambda: all(not machine.unreachable for machine in provider.list()))


def test_nobody_waits_twice_for_a_silent_machine(
    bed: SshTestbed, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_ANSWER_S", 1.0)
    provider = make()
    create(provider, "a", "b")
    host = bed.hosts[1]
    asked: list[str] = []
    with bed.mute(host):
        assert any(machine.unreachable for machine in provider.list())
        monkeypatch.setattr(asking, "_ANSWER_S", 3600.0)  # whoever asks now waits for ever
        for _ in range(3):
            (silent,) = (machine for machine in provider.list() if machine.unreachable)
            asked.append(silent.instance_id)
        assert isinstance(provider.terminate([silent.id])[silent.id], Transient)
    assert asked == ["a"] * 3
    monkeypatch.setattr(asking, "_ANSWER_S", 10.0)


def test_what_was_let_in_and_is_silent_is_cleaned_up_later(
    bed: SshTestbed, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_ANSWER_S", 1.0)
    keys = ["cat", f"/home/{USER}/.ssh/authorized_keys"]
    make().prepare([WORKER])
    CONNECTIONS.close_all()
    with bed.mute(bed.hosts[1]):
        with pytest.raises(Transient, match="may have the cluster's key"):
            make().cleanup()
        assert "clusterctl:me:name" not in bed.hosts[2].run(keys)
    monkeypatch.setattr(asking, "_ANSWER_S", 10.0)
    assert "clusterctl:me:name" in bed.hosts[1].run(keys)

    def is_clean() -> bool:
        with contextlib.suppress(Transient):
            make().cleanup()
        return "clusterctl:me:name" not in bed.hosts[1].run(keys)

    assert eventually(is_clean)
    assert not Path(make().settings()["folder"]).exists()


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[Path]:
    """A disk of the folder's own, with what it held; yields the file that, once it is written to, fills it."""
    held = {file.name: file.read_bytes() for file in folder.iterdir()} if folder.exists() else {}
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "full", str(folder)], check=True)
    try:
        for name, data in held.items():
            (folder / name).write_bytes(data)
            (folder / name).chmod(0o600)
        filler = folder / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(bytes(1_000_000))
        yield filler
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_keeps_no_machine_from_being_given_back(
    bed: SshTestbed, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make().prepare([WORKER])
    create(make(), "h", role=MachineTags.HEAD)
    create(make(), "a")  # the third has the key and nothing else
    keys = ["cat", f"/home/{USER}/.ssh/authorized_keys"]
    with full_disk(tmp_path / "one") as filler:
        provider = make()
        assert set(provider.terminate([machine.id for machine in provider.list()]).values()) == {None}
        assert provider.list() == []
        monkeypatch.setattr(asking, "_ANSWER_S", 1.0)
        CONNECTIONS.close_all()
        with bed.mute(bed.hosts[2]), pytest.raises(Transient, match="may have the cluster's key"):
            make().cleanup()
        monkeypatch.setattr(asking, "_ANSWER_S", 10.0)
        monkeypatch.setattr(asking, "SILENCES", Silences())
        make().cleanup()
        assert [*(tmp_path / "one").iterdir()] == [filler]
    for host in bed.hosts:
        assert left_on(host) == ""
        assert "clusterctl" not in host.run(keys)


def test_on_a_full_disk_no_machine_is_let_in(make: Make, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with full_disk(tmp_path / "one") as filler:
        with pytest.raises(Config, match=r"cannot be written to .*No space left.*make room"):
            make().prepare([WORKER])
        assert {file.name for file in filler.parent.iterdir()} <= {"filler", "ssh_key"}
        assert not (filler.parent / "ssh_key.pub").exists()


def test_without_memory_a_silent_machine_may_have_anything(
    bed: SshTestbed, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(asking, "_ANSWER_S", 1.0)
    make().prepare([WORKER])
    create(make(), "h", role=MachineTags.HEAD)
    shutil.rmtree(tmp_path / "one")
    CONNECTIONS.close_all()
    with bed.mute(bed.hosts[1]):
        provider = make()
        assert set(provider.terminate([machine.id for machine in provider.list()]).values()) == {None}
        for again in (provider, make()):
            with pytest.raises(
                Transient, match=f"may have .*:\n  {bed.hosts[1].address}: .* does not answer"
            ):
                again.cleanup()
    monkeypatch.setattr(asking, "_ANSWER_S", 10.0)
    monkeypatch.setattr(asking, "SILENCES", Silences())
    make().cleanup()
    assert "clusterctl" not in bed.hosts[1].run(["cat", f"/home/{USER}/.ssh/authorized_keys"])
    assert not (tmp_path / "one").exists()


def test_a_machine_that_was_never_let_in_keeps_nothing_up(
    bed: SshTestbed, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_ANSWER_S", 1.0)
    CONNECTIONS.close_all()
    with bed.mute(bed.hosts[1]):
        provider = make()
        provider.check([WORKER])
        provider.prepare([WORKER])
        provider.cleanup()


def test_a_machine_that_the_spec_names_no_more_is_given_back(bed: SshTestbed, make: Make) -> None:
    make().prepare([WORKER])
    create(make(), "a", "b")
    smaller = make(only=2)
    unwanted = {machine.instance_id: bool(machine.unwanted) for machine in smaller.list()}
    assert unwanted == {"a": False, "b": True}
    assert create(smaller, "c").errors
    keys = f"/home/{USER}/.ssh/authorized_keys"
    smaller.prepare([WORKER])
    (gone,) = (machine for machine in smaller.list() if machine.instance_id == "b")
    assert smaller.terminate([gone.id]) == {gone.id: None}
    assert left_on(bed.hosts[2]) == ""
    (last,) = make(only=2).list()
    assert last.instance_id == "a"
    assert "clusterctl:me:name" in bed.hosts[2].run(["cat", keys])
    smaller.terminate([last.id])
    make(only=2).cleanup()
    assert "clusterctl:me:name" not in bed.hosts[2].run(["cat", keys])


def test_the_head_finds_itself_without_entering_itself(
    bed: SshTestbed, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    operators = make()
    (machine,) = create(operators, "h", role=MachineTags.HEAD).machines
    home = tmp_path / "home of the head"
    shell = SshShell(operators._targets[bed.hosts[0].address])
    pull(shell, ".clusterctl-node", str(home / ".clusterctl-node"))
    monkeypatch.setenv("HOME", str(home))
    before = connections(bed.hosts[0])
    heads = make(only=1, seat=Seat.HEAD)
    assert heads.list() == [machine]
    assert connections(bed.hosts[0]) == before


def test_when_none_answers_nothing_is_claimed_of_them(make: Make, tmp_path: Path) -> None:
    new_key(tmp_path / "other")
    stranger = make(key=tmp_path / "other")
    with pytest.raises(Auth, match="does not accept"):
        stranger.list()
    assert [problem.fatal for problem in stranger.check([])] == [True, True, True]


def test_home_directories_that_machines_share_are_noticed(bed: SshTestbed, make: Make) -> None:
    provider = make()
    host = bed.hosts[1]
    create(provider, "a")
    claim = f"/home/{USER}/.clusterctl-node/machine.json"
    draft = provider._draft(
        LaunchRequest("t", WORKER, 1, Offer(), {}, ("b",)),
        0,
        host.address,
        provider._asking.look([host.address])[host.address],
    )
    host.run(["sed", "-i", 's/"hostname":"h2"/"hostname":"elsewhere"/', claim])
    with pytest.raises(Exception, match="shares its home directory with elsewhere"):
        provider._take({host.address: draft}, provider._targets[host.address])


def test_a_replacement_waits_for_the_machine_that_is_being_given_back(make: Make) -> None:
    provider = make(only=2)
    (old,) = create(provider, "a").machines
    stubborn = "trap '' TERM; while :; do sleep 0.1; done"
    provider.shell(old).run(f"setsid sh -c {shlex.quote(stubborn)} </dev/null >/dev/null 2>&1 &")
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(provider.terminate, [old.id])
        assert eventually(lambda: provider._ending)
        result = create(provider, "b")
        assert ending.result() == {old.id: None}
    assert result.errors == ()
    assert [machine.instance_id for machine in result.machines] == ["b"]


def test_clusters_are_found_by_name_and_owner(make: Make) -> None:
    create(make("one"), "a")
    assert make("x", owner="me").clusters("name") == ["one"]
    assert make("x", owner="you").clusters("name") == []
    assert make("x", owner="me").clusters("other") == []


def test_types_may_be_bound_to_machines(bed: SshTestbed, make: Make) -> None:
    provider = make()
    last = bed.hosts[2].address
    kind = NodeType("w", max_workers=9, node_config={"hosts": [last]})
    assert [machine.address for machine in create(provider, "a", kind=kind).machines] == [last]
    assert provider.check([kind]) == []
    (problem,) = provider.check([NodeType("w", node_config={"hosts": ["10.1.1.1"]})])
    assert "10.1.1.1 is none of provider.workers" in problem.what
    (problem,) = provider.check([NodeType("w", node_config={"host": "x"})])
    assert "unknown field" in problem.what


def test_a_head_alone_has_an_offer(make: Make) -> None:
    alone = make(only=1)
    assert len(alone.offers(NodeType("head"))) == 1
    assert alone.offers(WORKER) == []


def test_an_offer_says_what_the_smallest_machine_has(make: Make) -> None:
    (offer,) = make().offers(WORKER)
    assert offer.resources["CPU"] >= 1
    assert offer.resources["memory"] > 2**28
    (offer,) = make().offers(NodeType("w", {"CPU": 3.0, "memory": 5.0}))
    assert offer.resources == {"CPU": 3.0, "memory": 5.0}


def test_machines_of_a_new_cluster_are_asked_once_for_all(
    bed: SshTestbed, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_LATELY_S", 3600.0)
    provider = make()
    before = [sessions(host) for host in bed.hosts]
    assert provider.list() == []
    assert provider.check([WORKER]) == []
    assert provider.clusters("name") == []
    assert [sessions(host) for host in bed.hosts] == [count + 1 for count in before]
    assert provider.list() == []  # which is never what was said before
    assert [sessions(host) for host in bed.hosts] == [count + 2 for count in before]


def test_a_machine_without_the_right_python_is_refused(make: Make) -> None:
    problems = make(python="python2.7").check([WORKER])
    assert len(problems) == 3
    assert "has no `python2.7` that works" in problems[0].what
    assert all(problem.fatal for problem in problems)
