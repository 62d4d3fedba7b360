"""The provider on Google's SDK, against a pretended platform that goes wrong on demand. What every provider must keep
is in tests/contract."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoscaler.provider import (
    ON_DEMAND,
    SPOT,
    Auth,
    Capacity,
    Config,
    Machine,
    MachineState,
    MachineTags,
    NodeType,
    NotFound,
    Quota,
    Throttled,
    Transient,
)
from clusterctl.providers.gcp import api as apis
from clusterctl.providers.gcp.provider import GcpMachines
from clusterctl.providers.protocol import Seat
from tests.clusterctl.providers.gcp.cluster import GPU, SMALL, ZONE, create
from tests.polling import eventually
from tests.testbed.gcp import catalog
from tests.testbed.gcp.server import Cloud


def inserts(cloud: Cloud) -> int:
    return sum(call.startswith("POST") and call.endswith("/instances") for call in cloud.compute.faults.calls)


# ---------------------------------------------------------------- making machines


def test_no_stock_in_a_zone_is_this_markets_alone(cloud: Cloud, provider: GcpMachines) -> None:
    cloud.compute.faults.stockouts.add((ZONE, "spot"))
    kind = NodeType("small", node_config={"machineType": "e2-small"}, spot=True)
    refused = create(provider, "a", kind=kind, market=SPOT)
    assert refused.machines == ()
    assert [type(error) for error in refused.errors] == [Capacity]
    assert ZONE in str(refused.errors[0])
    assert provider.list() == []
    assert create(provider, "b", kind=kind, market=ON_DEMAND).errors == ()
    (made,) = create(provider, "c", kind=kind, market=SPOT, zone="us-west1-b").machines
    assert made.market == SPOT


def test_part_of_a_request_is_made(provider: GcpMachines) -> None:
    result = create(provider, "a", "b", kind=GPU, market=SPOT)
    assert len(result.machines) == 1
    assert [type(error) for error in result.errors] == [Quota]
    assert {machine.id for machine in provider.list()} == {machine.id for machine in result.machines}


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [(403, "forbidden", Auth), (403, "quotaExceeded", Quota), (400, "invalid", Config)],
)
def test_a_refusal(
    cloud: Cloud, provider: GcpMachines, status: int, reason: str, kind: type[Exception]
) -> None:
    cloud.compute.faults.add("POST .*/instances$", status, reason=reason)
    result = create(provider, "a")
    assert [type(error) for error in result.errors] == [kind]
    assert inserts(cloud) == 1, "it is not asked again"
    assert "in us-west1-a: pretended" in str(result.errors[0])


def test_an_image_that_is_not_there(provider: GcpMachines) -> None:
    disks = [{"boot": True, "initializeParams": {"sourceImage": "projects/x/global/images/nothing"}}]
    kind = NodeType("small", node_config={"disks": disks})
    result = create(provider, "a", kind=kind)
    assert [type(error) for error in result.errors] == [Config]


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("status", [503, 0])
def test_a_hiccup_is_asked_again_and_makes_nothing_twice(
    cloud: Cloud, provider: GcpMachines, status: int, is_done: bool
) -> None:
    cloud.compute.faults.add("POST .*/instances$", status, is_done=is_done, times=2)
    assert len(create(provider, "a").machines) == 1
    assert len(cloud.compute.all()) == 1


def test_a_platform_that_stays_away_leaves_it_open(cloud: Cloud, provider: GcpMachines) -> None:
    lasting = cloud.compute.faults.add("POST .*/instances$", 503, is_done=True, times=None)
    with pytest.raises(Transient):
        create(provider, "a", "b")
    cloud.compute.faults.remove(lasting)
    assert sorted(machine.instance_id for machine in create(provider, "a", "b").machines) == ["a", "b"]
    assert len(cloud.compute.all()) == 2


def test_a_head_that_is_throttled_leaves_patience_to_its_autoscaler(
    cloud: Cloud, make: Callable[..., GcpMachines]
) -> None:
    make().prepare([SMALL])
    cloud.compute.faults.add("POST .*/instances$", 429, reason="rateLimitExceeded", times=None)
    with pytest.raises(Throttled) as caught:
        create(make(seat=Seat.HEAD), "a")
    assert caught.value.retry_after_s > 0
    assert inserts(cloud) == 1


def test_an_instance_that_is_there_already_is_taken_for_what_it_is(
    cloud: Cloud, make: Callable[..., GcpMachines]
) -> None:
    provider = make()
    first = create(provider, "a").machines
    cloud.compute._requests.clear()  # after an hour the platform remembers no request
    assert create(provider, "a").machines == first
    # and somebody else's is nobody's of ours
    (instance,) = cloud.compute.instances.values()
    instance["labels"] = {}
    result = create(provider, "a")
    assert [type(error) for error in result.errors] == [Config]
    assert provider.list() == []


def test_a_slow_operation_is_not_waited_for_in_vain(
    cloud: Cloud, provider: GcpMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.compute.faults.operation_s = 60.0
    monkeypatch.setattr("clusterctl.providers.gcp.provider._CREATE_S", 0.2)
    (machine,) = create(provider, "a").machines
    assert machine.state is MachineState.PENDING


def test_a_machine_that_is_taken_back_at_once_is_no_machine(cloud: Cloud, provider: GcpMachines) -> None:
    cloud.compute.faults.add("GET .*/instances/", 404, reason="notFound")
    result = create(provider, "a", market=SPOT)
    assert [type(error) for error in result.errors] == [Capacity]


# ---------------------------------------------------------------- listing, ending


def test_a_listing_that_does_not_show_everything_is_none(cloud: Cloud, provider: GcpMachines) -> None:
    create(provider, "a")
    cloud.compute.faults.unreachable.add("us-west1-b")
    with pytest.raises(Transient, match="us-west1-b"):
        provider.list()
    cloud.compute.faults.unreachable = {"europe-west4-a"}
    assert len(provider.list()) == 1


def test_all_pages_are_read(provider: GcpMachines) -> None:
    names = [f"n{number}" for number in range(12)]
    create(provider, *names)
    assert sorted(machine.instance_id for machine in provider.list()) == sorted(names)


def test_what_is_preempted_is_gone(cloud: Cloud, provider: GcpMachines) -> None:
    create(provider, "a", market=SPOT)
    cloud.compute.preempt(cloud.compute.all()[0]["name"])
    assert eventually(lambda: provider.list() == [])


def test_a_spot_machine_that_google_takes_back_is_to_be_given_up(
    cloud: Cloud, make: Callable[..., GcpMachines]
) -> None:
    operators = make()
    create(operators, "a", market=SPOT)
    create(operators, "b", token="u")
    cloud.compute.faults.delete_s = 60.0  # the platform leaves it half a minute
    (spot,) = (one["name"] for one in cloud.compute.all() if one["scheduling"]["provisioningModel"] == "SPOT")
    cloud.compute.preempt(spot)
    listed = {one.instance_id: bool(one.unwanted) for one in make(seat=Seat.HEAD).list()}
    assert listed == {"a": True, "b": False}
    assert not any(one.unwanted for one in operators.list())


def test_one_refusal_does_not_keep_others_alive(cloud: Cloud, provider: GcpMachines) -> None:
    one, two = (machine.id for machine in create(provider, "a", "b").machines)
    cloud.compute.faults.add(f"DELETE .*{one.partition('.')[0]}", 403, reason="forbidden")
    answers = provider.terminate([one, two])
    assert isinstance(answers[one], Auth)
    assert answers[two] is None
    assert eventually(lambda: [machine.id for machine in provider.list()] == [one])


def test_a_stopped_head_is_listed_and_starts_at_another_address(provider: GcpMachines) -> None:
    (head,) = create(provider, "a", role=MachineTags.HEAD).machines
    provider.stop([head.id])
    assert [machine.state for machine in provider.list()] == [MachineState.STOPPED]
    with pytest.raises(NotFound, match="does not run"):
        provider.shell(Machine(head.id, MachineState.RUNNING, "", {}))
    provider.start([head.id])
    (again,) = provider.list()
    assert again.address == head.address
    assert again.public_address != head.public_address
    with pytest.raises(NotFound):
        provider.stop(["nothing.us-west1-a"])


# ---------------------------------------------------------------- what is around


def test_the_firewall_is_made_once_corrected_and_removed(
    cloud: Cloud, make: Callable[..., GcpMachines]
) -> None:
    provider = make()
    provider.prepare([SMALL])
    before = cloud.compute.firewalls.copy()
    provider.prepare([SMALL])
    assert cloud.compute.firewalls == before
    (enter,) = [rule for name, rule in before.items() if name.endswith("-ssh")]
    assert enter["sourceRanges"] == ["0.0.0.0/0"]
    make(more=", ssh_sources: [198.51.100.0/24]").prepare([SMALL])
    assert cloud.compute.firewalls[enter["name"]]["sourceRanges"] == ["198.51.100.0/24"]
    (made,) = create(provider, "a").machines
    (tag,) = cloud.compute.all()[0]["tags"]["items"]
    assert enter["targetTags"] == [tag]
    provider.cleanup()
    assert len(cloud.compute.firewalls) == 2, "machines need it"
    provider.terminate([made.id])
    assert eventually(lambda: provider.list() == [])
    provider.cleanup()
    assert cloud.compute.firewalls == {}


def test_an_interrupted_life_leaves_nothing_to_the_next(
    cloud: Cloud, make: Callable[..., GcpMachines]
) -> None:
    make("c-1").prepare([SMALL])
    second = make("c-2")
    second.prepare([SMALL])
    assert len(cloud.compute.firewalls) == 2
    second.cleanup()
    assert cloud.compute.firewalls == {}


def test_no_rule_is_made_in_somebody_elses_network(cloud: Cloud, make: Callable[..., GcpMachines]) -> None:
    make(more=", subnetwork: projects/host/regions/us-west1/subnetworks/s").prepare([SMALL])
    make(more=", firewall: false").prepare([SMALL])
    assert cloud.compute.firewalls == {}


def test_clusters_are_found_by_their_labels_alone(make: Callable[..., GcpMachines]) -> None:
    create(make("c-1"), "a")
    create(make("c-2"), "b")
    create(make("c-3", owner="somebody"), "x")
    assert make("?").clusters("c") == ["c-1", "c-2"]


def test_the_head_asks_for_machines_with_the_key_that_it_was_given(
    cloud: Cloud, make: Callable[..., GcpMachines], tmp_path: Path
) -> None:
    operators = make()
    operators.prepare([SMALL])
    on_head = operators.for_head()
    there = tmp_path / "there"
    there.mkdir()
    for target, source in on_head.files:
        (there / Path(target).name).write_bytes(Path(source).read_bytes())
        (there / Path(target).name).chmod(0o600)
    heads = make(seat=Seat.HEAD, **{**on_head.settings, "folder": str(there)})
    for provider, name in ((operators, "a"), (heads, "b")):
        create(provider, name)
    keys = {
        item["value"].split()[1]
        for instance in cloud.compute.all()
        for item in instance["metadata"]["items"]
        if item["key"] == "ssh-keys"
    }
    assert len(keys) == 1


# ---------------------------------------------------------------- checks


def test_a_check_finds_nothing_and_makes_nothing(cloud: Cloud, provider: GcpMachines, tmp_path: Path) -> None:
    assert provider.check([SMALL, GPU]) == []
    assert not any(call.startswith(("POST", "DELETE")) for call in cloud.compute.faults.calls)
    assert not (tmp_path / "c").exists()


def wrong(**node_config: Any) -> NodeType:
    return NodeType("w", node_config=node_config, max_workers=1)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (wrong(machineType="e9-huge"), "no machine type e9-huge"),
        (wrong(machinetype="e2-small"), "machinetype"),
        (
            wrong(guestAccelerators=[{"acceleratorType": "nvidia-h100-80gb"}]),
            "no accelerator nvidia-h100-80gb",
        ),
        (
            wrong(disks=[{"boot": True, "initializeParams": {"sourceImage": "projects/x/global/images/y"}}]),
            "image",
        ),
        (wrong(sourceInstanceTemplate="global/instanceTemplates/none"), "instance template none"),
        (wrong(networkInterfaces=[{"network": "global/networks/mine"}]), "network mine"),
        (NodeType("w", zones=("us-west1-z",)), "us-west1-z"),
        (
            NodeType("w", node_config={"machineType": "c2-standard-4"}, min_workers=1, max_workers=1),
            "C2_CPUS",
        ),
    ],
)
def test_what_would_fail_is_said_before_it_costs(provider: GcpMachines, kind: NodeType, what: str) -> None:
    problems = [problem for problem in provider.check([SMALL, kind]) if problem.fatal]
    assert len(problems) == 1, problems
    assert what in problems[0].what
    assert problems[0].advice


def test_a_project_or_region_that_is_not_there(make: Callable[..., GcpMachines]) -> None:
    (problem,) = make(project="another").check([SMALL])
    assert "another" in problem.what
    assert "project_id" in problem.advice


def test_a_head_that_could_make_no_workers(cloud: Cloud, make: Callable[..., GcpMachines]) -> None:
    cloud.compute.default_service_account = ""
    (problem,) = make().check([SMALL])
    assert "default service account" in problem.what
    assert make(more=", service_account: me@a-project").check([SMALL]) == []


def test_a_platform_that_is_silent_does_not_hold_anybody_up(
    cloud: Cloud, provider: GcpMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apis, "_CALL_S", 0.1)
    silent = cloud.compute.faults.add("GET .*/aggregated/instances", times=None, slow_s=0.5)
    with pytest.raises(Transient, match="does not answer"):
        provider.list()
    cloud.compute.faults.remove(silent)
    monkeypatch.setattr(apis, "_CALL_S", 20.0)
    assert provider.list() == []


def test_the_project_is_that_of_the_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "account.json").write_text(
        json.dumps(
            {
                "type": "service_account",
                "project_id": "theirs",
                "client_email": "me@theirs",
                "private_key": key.decode(),
                "token_uri": "http://127.0.0.1:1/token",
            }
        )
    )
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    monkeypatch.setattr(apis, "_PAUSE_S", 0.01)
    api = apis.ComputeApi("", "")
    assert api.project == "theirs"
    assert apis.ComputeApi("mine", "").project == "mine"
    with pytest.raises(Transient):  # nobody listens where tokens are to be had
        api.zones()


def test_without_credentials_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing"))
    with pytest.raises(Auth, match="gcloud auth application-default login"):
        _ = apis.ComputeApi("", "").project


def test_offers_are_where_machine_and_accelerator_are(provider: GcpMachines) -> None:
    zones = catalog.REGIONS["us-west1"]
    assert [offer.zone for offer in provider.offers(SMALL)] == list(zones)
    found = [(offer.zone, offer.market) for offer in provider.offers(GPU)]
    assert found == [(zone, market) for market in (SPOT, ON_DEMAND) for zone in zones[:2]]
    assert provider.offers(GPU)[0].resources["GPU"] == 1.0


def test_a_project_without_gpus_anywhere_is_told_of(cloud: Cloud, provider: GcpMachines) -> None:
    cloud.compute.quotas = [{"metric": "GPUS_ALL_REGIONS", "limit": 0.0, "usage": 0.0}]
    (problem,) = provider.check([GPU])
    assert "1 GPUS_ALL_REGIONS are needed in project a-project, 0 are left" in problem.what
    assert provider.check([SMALL]) == []


def test_long_names_make_machines_and_rules(cloud: Cloud, make: Callable[..., GcpMachines]) -> None:
    long = "A-cluster-of-somebody-who-likes-long-names-and-has-a-lot-to-say"
    assert len(long) == 63
    provider = make(cluster_id=f"{long}-0123456789", name=long)
    provider.prepare([SMALL])
    assert create(provider, "a", role=MachineTags.HEAD, cluster_name=long).errors == ()
    (machine,) = provider.list()
    assert machine.tags[MachineTags.CLUSTER_ID] == f"{long}-0123456789"
    assert provider.clusters(long) == [f"{long}-0123456789"]
    assert all(len(name) <= 63 for name in cloud.compute.firewalls)


def test_two_peoples_clusters_of_one_name_do_not_meet(cloud: Cloud, make: Callable[..., GcpMachines]) -> None:
    mine, theirs = make(), make(owner="you")
    for provider in (mine, theirs):
        provider.prepare([SMALL])
    assert len(cloud.compute.firewalls) == 4
    assert create(mine, "a").errors == create(theirs, "a").errors == ()
    assert len(cloud.compute.all()) == 2
    (ours,) = mine.list()
    assert isinstance(theirs.terminate([ours.id])[ours.id], NotFound)
    assert theirs.clusters("c") == ["c-1"]
    mine.terminate([ours.id])
    assert eventually(lambda: mine.list() == [])
    mine.cleanup()
    assert len(cloud.compute.firewalls) == 2
    assert len(theirs.list()) == 1


def test_a_deletion_that_fails_is_told_and_asked_again(cloud: Cloud, provider: GcpMachines) -> None:
    made = {machine.instance_id: machine.id for machine in create(provider, "a", "b").machines}
    name = made["a"].partition(".")[0]
    cloud.compute.faults.add(f"DELETE .*{name}", 403, reason="forbidden")
    answers = provider.terminate([*made.values()])
    assert isinstance(answers[made["a"]], Auth)
    assert answers[made["b"]] is None
    assert eventually(lambda: [machine.instance_id for machine in provider.list()] == ["a"])
    assert provider.terminate([made["a"]]) == {made["a"]: None}
    assert eventually(lambda: provider.list() == [])


@pytest.mark.parametrize(
    "config",
    [
        {"disks": "text"},
        {"disks": [1]},
        {"disks": [{"boot": True, "initializeParams": ["x"]}]},
        {"guestAccelerators": [90]},
        {"guestAccelerators": {"a": 1}},
        {"networkInterfaces": [None, "x"]},
        {"metadata": {"items": [3]}},
        {"scheduling": "SPOT"},
        {"machinetype": "e2-small"},
    ],
    ids=str,
)
def test_a_node_config_of_the_wrong_shape_is_named(provider: GcpMachines, config: dict[str, Any]) -> None:
    kind = NodeType("odd", node_config=config)
    for check in (provider.check, provider.check_offline):
        (problem,) = check([kind])
        assert "node type odd: node_config" in problem.what


def test_what_is_null_says_nothing(provider: GcpMachines) -> None:
    config = {"machineType": None, "disks": [{"boot": True, "initializeParams": None}], "scheduling": None}
    assert provider.check_offline([NodeType("plain", node_config=config)]) == []
    config = {"guestAccelerators": [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": None}]}
    assert provider.check_offline([NodeType("gpu", node_config=config)]) == []
