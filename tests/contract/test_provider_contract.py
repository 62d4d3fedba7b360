"""What every provider must keep, run against each of them. A new provider is one more entry of
`PROVIDERS`."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from autoscaler.provider import (
    LaunchRequest,
    LaunchResult,
    Machine,
    MachineState,
    MachineTags,
    NodeType,
    NotFound,
    Offer,
    Provider,
    Shell,
    ShellRefused,
    ShellTimedOut,
)
from autoscaler.simulation import SimulatedProvider
from clusterctl.providers import registry
from clusterctl.providers.gcp import api as apis
from clusterctl.providers.ownership import OWNER_NAME_TAG, ForeignCluster, Owner
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.shell.connections import CONNECTIONS
from clusterctl.spec.load import load_text
from tests.polling import eventually
from tests.testbed.aws_hosts import AwsCloud
from tests.testbed.gcp.server import Cloud
from tests.testbed.sshd import BARE, USER, SshTestbed, missing

OWNER = Owner("contract", "contract@here")
KIND = NodeType("small", {"CPU": 1.0}, max_workers=8)
SEEN = (MachineState.PENDING, MachineState.RUNNING)


@dataclass
class Platform:
    """One platform: `make` gives the provider of a cluster, `real` says that commands really run. `make_of` gives the
    provider of a cluster and an owner, with a state folder of its own."""

    make: Callable[[str], Provider]
    real: bool
    make_of: Callable[[str, Owner], OperatorProvider] | None = None


def simulated(_: Path) -> Platform:
    known: dict[str, SimulatedProvider] = {}
    return Platform(lambda cluster: known.setdefault(cluster, SimulatedProvider(cluster)), real=False)


def local(root: Path) -> Platform:
    from clusterctl.providers.local.provider import LocalMachines

    def make(cluster: str, owner: Owner = OWNER) -> OperatorProvider:
        return LocalMachines(cluster, owner, root=str(root / "m"))

    return Platform(make, real=True, make_of=make)


def external(root: Path) -> Platform:
    """The example for docs/adding-a-provider.md."""
    spec = load_text(
        "cluster_name: name\nprovider: {type: external, class: 'examples.providers.directories:Directories', "
        f"config: {{root: {root / 'm'}}}}}\nhead_node_type: small\navailable_node_types: {{small: {{}}}}\n"
    )

    def make(cluster: str, owner: Owner = OWNER) -> OperatorProvider:
        return registry.make(spec, cluster, owner.settings())

    return Platform(make, real=True, make_of=make)


def ssh(root: Path) -> Platform:
    from clusterctl.providers.ssh.provider import SshMachines

    bed = _bed()
    machines = [host.address for host in bed.hosts]
    spec = load_text(
        f"cluster_name: name\nprovider: {{type: ssh, head: {machines[0]}, workers: [{', '.join(machines[1:])}]}}\n"
        f"auth: {{ssh_user: {USER}, ssh_private_key: {bed.key_file}}}\n"
    )

    def make(cluster: str, owner: Owner = OWNER) -> OperatorProvider:
        return SshMachines(spec, cluster, {**owner.settings(), "folder": str(root / owner.id / cluster)})

    return Platform(make, real=True, make_of=make)


def gcp(root: Path) -> Platform:
    from clusterctl.providers.gcp.provider import GcpMachines

    where = f"region: us-west1, project_id: a-project, endpoint: '{_google().endpoint}'"
    spec = load_text(
        f"cluster_name: name\nprovider: {{type: gcp, {where}}}\n"
        "head_node_type: small\navailable_node_types: {small: {}}\n"
    )

    def make(cluster: str, owner: Owner | None = None) -> OperatorProvider:
        # An owner for each test: what was made and ended under a token is not made again under it.
        owner = owner or Owner(root.name, "contract")
        return GcpMachines(spec, cluster, {**owner.settings(), "folder": str(root / owner.id / cluster)})

    make("one").prepare([KIND])  # the firewall lets nobody in before
    return Platform(make, real=True, make_of=make)


def aws(root: Path) -> Platform:
    from clusterctl.providers.aws.provider import AwsMachines

    spec = load_text(
        f"cluster_name: name\nprovider: {{type: aws, region: us-east-1, endpoint_url: '{_amazon().aws.url}'}}\n"
        "head_node_type: small\navailable_node_types: {small: {node_config: {InstanceType: t3.small}}}\n"
    )

    _amazon().reset()

    def make(cluster: str, owner: Owner = OWNER) -> OperatorProvider:
        settings = {**owner.settings(), "folder": str(root / owner.id / cluster)}
        provider = AwsMachines(spec, cluster, settings)
        provider.prepare([KIND])
        return provider

    return Platform(make, real=True, make_of=make)


@cache
def _amazon() -> AwsCloud:
    return AwsCloud()


@cache
def _google() -> Cloud:
    return Cloud(with_hosts=True)


@cache
def _bed() -> SshTestbed:
    return SshTestbed(
        7, Path(tempfile.mkdtemp(prefix="c-", dir=os.environ.get("CLUSTERCTL_TMPDIR"))), hidden=BARE
    )


@pytest.fixture(scope="module", autouse=True)
def bed() -> Iterator[None]:
    """The hosts of `ssh` and the clouds, if they are asked for: this module's end is theirs."""
    yield
    if _amazon.cache_info().currsize:
        CONNECTIONS.close_all()
        _amazon().close()
    if _google.cache_info().currsize:
        CONNECTIONS.close_all()
        apis.of.cache_clear()
        _google().close()
    if _bed.cache_info().currsize:
        CONNECTIONS.close_all()
        _bed().close()
        shutil.rmtree(_bed().key_file.parent)


PROVIDERS = {
    "simulated": simulated,
    "local": local,
    "ssh": ssh,
    "aws": aws,
    "gcp": gcp,
    "external": external,
}
INSIDE: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "ssh": lambda: _bed().inside(),
    "aws": lambda: _amazon().inside(),
    "gcp": lambda: _google().inside(),
}
"""Where those with hosts are reached from."""


@pytest.fixture(params=sorted(PROVIDERS))
def platform(request: pytest.FixtureRequest) -> Iterator[Platform]:
    if request.param in INSIDE and (reason := missing()):
        pytest.skip(reason)
    with INSIDE.get(request.param, contextlib.nullcontext)():
        yield from _platform(request)


def _platform(request: pytest.FixtureRequest) -> Iterator[Platform]:
    # Short: Unix sockets may live below it.
    root = Path(tempfile.mkdtemp(prefix="c-", dir=os.environ.get("CLUSTERCTL_TMPDIR")))
    found = PROVIDERS[request.param](root)
    try:
        yield found
    finally:
        for cluster in ("one", "two"):
            provider = found.make(cluster)
            provider.terminate([machine.id for machine in existing(provider)])
            assert eventually(lambda provider=provider: existing(provider) == [])
            provider.cleanup()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def provider(platform: Platform) -> Provider:
    return platform.make("one")


def request_for(
    *names: str, token: str = "token", cluster: str = "one", kind: NodeType = KIND
) -> LaunchRequest:
    tags = {
        MachineTags.CLUSTER_ID: cluster,
        MachineTags.CLUSTER_NAME: "name",
        MachineTags.ROLE: MachineTags.WORKER,
        MachineTags.CONFIG_HASH: "hash",
    }
    return LaunchRequest(token, kind, len(names), Offer("local"), tags, names)


def create(provider: Provider, *names: str, token: str = "token", cluster: str = "one") -> LaunchResult:
    (offer, *_) = provider.offers(KIND)
    asked = request_for(*names, token=token, cluster=cluster)
    return provider.create(LaunchRequest(asked.token, KIND, asked.count, offer, asked.tags, names))


def shell_of(provider: Provider, machine: Machine) -> Shell:
    """The machine's shell, once it has booted."""
    shell = provider.shell(machine)

    def answers() -> bool:
        try:
            return shell.run("true", timeout_s=60).exit_status == 0
        except (ShellRefused, ShellTimedOut):
            return False

    assert eventually(answers)
    return shell


def existing(provider: Provider) -> list[Machine]:
    """Some platforms list what has ended for a while."""
    return [machine for machine in provider.list() if machine.state is not MachineState.GONE]


def listed(provider: Provider) -> dict[str, Machine]:
    return {machine.instance_id: machine for machine in existing(provider)}


def test_it_is_a_provider(provider: Provider) -> None:
    assert isinstance(provider, Provider)
    assert provider.capabilities.max_per_create >= 1
    assert provider.capabilities.listing_lag_s >= 0


def test_checking_and_preparing_make_no_machine(provider: Provider) -> None:
    assert [problem for problem in provider.check([KIND]) if problem.fatal] == []
    assert provider.prepare([KIND]) == provider.prepare([KIND]), "it is safe to repeat"
    assert existing(provider) == []


def test_there_is_an_offer_within_the_wanted_zones(provider: Provider) -> None:
    (first, *_) = provider.offers(KIND)
    assert first.price >= 0
    nowhere = NodeType("small", {"CPU": 1.0}, zones=("no-such-zone",))
    assert provider.offers(nowhere) == []


def test_machines_carry_their_tags(provider: Provider) -> None:
    made = create(provider, "a", "b").machines
    assert sorted(machine.instance_id for machine in made) == ["a", "b"]
    found = listed(provider)
    for name in ("a", "b"):
        machine = found[name]
        assert machine.state in SEEN
        assert machine.node_type == "small"
        assert machine.launched_s > 0
        for key, value in request_for("a", "b").tags_of(("a", "b").index(name)).items():
            assert machine.tags[key] == value
    assert len({machine.id for machine in found.values()}) == 2


def test_a_machine_runs_soon(provider: Provider) -> None:
    create(provider, "a")
    assert eventually(lambda: listed(provider)["a"].state is MachineState.RUNNING)


def test_the_same_token_makes_nothing_twice(provider: Provider) -> None:
    first = create(provider, "a", "b")
    again = create(provider, "a", "b")
    assert {m.id for m in first.machines} == {m.id for m in again.machines}
    assert len(existing(provider)) == 2
    assert again.errors == ()


def test_another_token_makes_another_machine(provider: Provider) -> None:
    create(provider, "a", token="t1")
    create(provider, "b", token="t2")
    assert sorted(listed(provider)) == ["a", "b"]


def test_calls_of_several_threads_do_not_mix(provider: Provider) -> None:
    threads = [
        threading.Thread(target=create, args=(provider, f"n{i}"), kwargs={"token": f"t{i % 3}{i}"})
        for i in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(listed(provider)) == [f"n{i}" for i in range(6)]


def test_terminated_machines_vanish_from_the_list(provider: Provider) -> None:
    made = {machine.instance_id: machine.id for machine in create(provider, "a", "b").machines}
    assert provider.terminate([made["a"]]) == {made["a"]: None}
    assert eventually(lambda: "a" not in listed(provider))
    assert "b" in listed(provider)


def test_terminating_what_is_not_there_says_so_and_harms_nobody(provider: Provider) -> None:
    made = create(provider, "a").machines[0].id
    answers = provider.terminate(["no-such-machine", made])
    assert isinstance(answers["no-such-machine"], NotFound)
    assert answers[made] is None
    assert eventually(lambda: existing(provider) == [])
    assert set(provider.terminate([made])) == {made}
    assert provider.terminate([]) == {}


def test_other_clusters_are_not_seen_and_not_touched(platform: Platform) -> None:
    one, two = platform.make("one"), platform.make("two")
    ours = create(one, "a").machines[0]
    theirs = create(two, "b", cluster="two").machines[0]
    assert list(listed(one)) == ["a"]
    assert list(listed(two)) == ["b"]
    one.terminate([theirs.id]) if ours.id != theirs.id else None
    assert list(listed(two)) == ["b"]
    one.cleanup()
    assert list(listed(two)) == ["b"]


def test_owners_do_not_meet_and_are_the_same_from_another_folder(platform: Platform) -> None:
    if platform.make_of is None:
        pytest.skip("the simulated platform has no owners")
    ann, bob = Owner(f"ann-{os.urandom(3).hex()}", "ann@there"), Owner("bob", "bob@here")
    hers = platform.make_of("one", ann)
    made = create(hers, "a").machines[0]
    assert made.tags[OWNER_NAME_TAG] == "ann@there"
    assert hers.clusters("name") == ["one"]
    assert hers.foreign("name") == []
    his = platform.make_of("two", bob)
    assert "one" not in his.clusters("name")
    assert his.foreign("name") == [ForeignCluster("one", ann, (made.id,))]
    assert his.foreign("other") == []
    assert isinstance(his.terminate([made.id])[made.id], NotFound)
    his.cleanup()
    assert list(listed(hers)) == ["a"]
    # What `down --adopt` makes: her provider, by her tags alone.
    adopted = platform.make_of("one", his.foreign("name")[0].owner)
    assert adopted.terminate([made.id]) == {made.id: None}
    assert eventually(lambda: existing(adopted) == [])
    assert platform.make_of("two", bob).foreign("name") == []
    adopted.cleanup()


def test_cleaning_up_spares_machines(provider: Provider) -> None:
    create(provider, "a")
    provider.cleanup()
    assert list(listed(provider)) == ["a"]


def test_a_shell_runs_commands(platform: Platform) -> None:
    provider = platform.make("one")
    machine = create(provider, "a").machines[0]
    lines: list[str] = []
    shell = shell_of(provider, machine)
    try:
        result = shell.run(
            "echo hello; echo $SOME", env={"SOME": "thing"}, timeout_s=60, on_output=lines.append
        )
        assert result.exit_status == 0
        assert lines
        if platform.real:
            assert result.output.split() == ["hello", "thing"]
            assert shell.run("exit 3").exit_status == 3
    finally:
        shell.close()
        shell.close()


def test_a_port_of_the_machine_is_reached(provider: Provider) -> None:
    shell = shell_of(provider, create(provider, "a").machines[0])
    try:
        with shell.forward(12345) as port:
            assert 0 < port < 65536
    finally:
        shell.close()
