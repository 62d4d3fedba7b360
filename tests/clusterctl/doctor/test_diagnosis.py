"""What facts mean: each way in which a cluster may be broken has a finding that says what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.provider import Machine, MachineState, MachineTags, Problem
from clusterctl.doctor.collect import distinct
from clusterctl.doctor.diagnosis import Finding, Severity, diagnose
from clusterctl.doctor.facts import Api, Entry, Facts, Failure, Seen

OWN = ("1.0", "3.11")
HEAD = Machine(
    "m-head", MachineState.RUNNING, "head", {MachineTags.ROLE: MachineTags.HEAD}, public_address="9.9.9.9"
)
WORKER = Machine("m-1", MachineState.RUNNING, "w", {MachineTags.INSTANCE_ID: "w-1"}, address="10.0.0.2")
FINE = Seen(
    Entry.OPEN,
    skew_s=0.1,
    disk_bytes=2.0**36,
    python="3.11",
    version="1.0",
    started=True,
    is_alive=True,
    daemons=frozenset({"head", "control", "node"}),
    listening=frozenset({8265}),
)
STATUS: dict[str, Any] = {
    "nodes": [{"instance_id": "c-head", "state": "ALIVE"}, {"instance_id": "w-1", "state": "ALIVE"}],
    "autoscaler": {"instances": [], "problems": [], "waiting": [], "failures": []},
}
WELL = Facts(
    "c",
    "clusterctl up c.yaml",
    "clusterctl down c",
    OWN[0],
    state="UP",
    machines=(HEAD, WORKER),
    seen={"m-head": FINE, "m-1": replace(FINE, daemons=frozenset({"node"}), reaches_head=True)},
    api=Api.ANSWERS,
    api_port=8265,
    head_version=OWN,
    status=STATUS,
)


def of_head(**changes: Any) -> Facts:
    return replace(WELL, seen={**WELL.seen, "m-head": replace(FINE, **changes)})


def of_worker(**changes: Any) -> Facts:
    return replace(WELL, seen={**WELL.seen, "m-1": replace(WELL.seen["m-1"], **changes)})


def of_scaling(**changes: Any) -> Facts:
    return replace(WELL, status={**STATUS, "autoscaler": {**STATUS["autoscaler"], **changes}})


def test_a_cluster_that_is_well_has_no_findings() -> None:
    assert diagnose(WELL) == []


NOT_RUNNING = replace(HEAD, state=MachineState.STOPPED)
BROKEN = {
    "began with it and did not finish": replace(WELL, state="STARTING"),
    "says something else than what is up": replace(WELL, spec_changed=True),
    "its YAML cannot be read": replace(WELL, spec_problem="c.yaml:1:1: what?"),
    "is being changed by": replace(WELL, busy="cluster 'c' is being changed by `clusterctl up` (process 4)"),
    "others may read": replace(WELL, secret="others may read the cluster's secret s", secret_file="s"),
    "no quota": replace(WELL, can_refuse=(Problem("no quota", "Ask for more."),)),
    "does not list machines: expired": replace(WELL, listing_problem="expired", machines=(), seen={}),
    "nobody remembers here: m-8, m-9": replace(WELL, strangers=("m-8", "m-9")),
    "no such cluster": Facts("c", "clusterctl up c.yaml", "clusterctl down c.yaml", OWN),
    "the head's machine is gone; 1 workers": replace(WELL, machines=(WORKER,), status={}),
    "it has ended by itself": replace(WELL, machines=(), stops_itself=True, seen={}, status={}),
    "it has several heads": replace(WELL, machines=(HEAD, replace(HEAD, id="m-h2"), WORKER)),
    "it is stopped": replace(WELL, state="STOPPED", machines=(NOT_RUNNING,), seen={}, status={}),
    "does not run: it is STOPPED": replace(WELL, machines=(NOT_RUNNING,), seen={}, status={}),
    "no daemon was started on the head's machine": of_head(
        started=False, is_alive=False, daemons=frozenset()
    ),
    "the head's process has ended; the last that it wrote:\n  oh": of_head(
        is_alive=False, daemons=frozenset(), last_words=("oh",)
    ),
    "the head has crashed, and its keeper restarts it": of_head(daemons=frozenset()),
    "nothing starts the head after a reboot": of_head(survives_reboot=False),
    "its API is not reached although port 8265 is open: no way": replace(
        WELL, api=Api.NOBODY, api_words="no way"
    ),
    "nobody listens at port 1": replace(WELL, api=Api.NOBODY, api_port=1),
    "does not answer in time": replace(WELL, api=Api.SLOW),
    "does not accept this machine's secret": replace(WELL, api=Api.DENIED),
    "has lost its control store": replace(WELL, api=Api.NO_CONTROL),
    "the node agent does not run": of_head(daemons=frozenset({"head", "control"})),
    "(9.9.9.9) refuses connections": of_head(entry=Entry.REFUSED, words="no"),
    "(9.9.9.9) does not answer: hm": of_head(entry=Entry.SILENT, words="hm"),
    "does not accept our key": of_head(entry=Entry.REJECTED, words="no"),
    "shows another host key": of_head(entry=Entry.OTHER_KEY, words="who"),
    "worker w-1 (10.0.0.2) cannot be entered": of_worker(entry=Entry.FAILED, words="no such host"),
    "worker w-1 has 1.0 MiB left": of_worker(disk_bytes=2.0**20),
    "the clock of worker w-1 is -90 s off": of_worker(skew_s=-90.0),
    "worker w-1 does not reach the head's control store": of_worker(reaches_head=False),
    "the node agent of worker w-1 has ended": of_worker(is_alive=False, daemons=frozenset()),
    "the runtime of worker w-1 does not work: No module": of_worker(version="", runtime_error="No module"),
    "runs clusterctl 0.9, and here is 1.0": replace(WELL, head_version=("0.9", "3.11")),
    "runs Python 3.12, and the head 3.11": of_worker(python="3.12"),
    "node w-7 (gpu) failed at step 'setup_commands[0]': exit status 1; the last that it": (
        replace(
            WELL, failures=(Failure("w-7", "gpu", "setup_commands[0]", "exit status 1", True, ("no space",)),)
        )
    ),
    "the autoscaler: the provider cannot list": of_scaling(problems=["the provider cannot list"]),
    "3 x {GPU: 9} can never run: none has it": of_scaling(
        waiting=[{"demand": "{GPU: 9}", "count": 3, "why": "none has it", "infeasible": True}]
    ),
    "machine m-5 runs and is no node": replace(
        WELL,
        machines=(
            *WELL.machines,
            Machine("m-5", MachineState.RUNNING, "w", {MachineTags.INSTANCE_ID: "w-5"}),
        ),
    ),
}


@pytest.mark.parametrize("words", BROKEN)
def test_each_fault_is_named_once_with_what_to_do(words: str) -> None:
    found = diagnose(BROKEN[words])
    assert len(found) == 1, found
    assert words in found[0].what
    assert found[0].advice or found[0].severity is Severity.NOTE


def test_what_follows_from_a_cause_is_not_named_again() -> None:
    cut_off = replace(of_head(entry=Entry.SILENT, words="no"), api=Api.NOBODY, status={})
    assert len(diagnose(cut_off)) == 1
    dead = of_head(is_alive=False, daemons=frozenset())
    alone = replace(WELL.seen["m-1"], reaches_head=False, is_alive=False, daemons=frozenset())
    (found,) = diagnose(replace(dead, seen={**dead.seen, "m-1": alone}, api=Api.NOBODY, status={}))
    assert "the head's process has ended" in found.what


def test_a_machine_on_its_way_is_no_stray() -> None:
    coming = of_scaling(instances=[{"id": "w-1", "state": "SETTING_UP"}])
    assert diagnose(replace(coming, status={**coming.status, "nodes": []})) == []


def severity(facts: Facts) -> Severity:
    found: list[Finding] = diagnose(facts)
    return found[0].severity


def test_notes_are_no_faults() -> None:
    assert severity(BROKEN["it is stopped"]) is Severity.NOTE
    assert severity(BROKEN["the clock of worker w-1 is -90 s off"]) is Severity.WARNING
    assert severity(BROKEN["does not answer in time"]) is Severity.ERROR


def test_equal_failures_hide_no_others() -> None:
    def failure(name: str, reason: str) -> dict[str, str]:
        return {"instance_id": name, "node_type": "gpu", "step": "", "reason": reason}

    told = [*(failure(f"w-{number}", "no capacity") for number in range(5)), failure("w-9", "no quota")]
    assert [item["instance_id"] for item in distinct(told)] == ["w-0", "w-9"]


@pytest.mark.parametrize(
    ("has_log", "advice"), [(True, "clusterctl logs --node w-1"), (False, "goes on trying")]
)
def test_a_log_that_could_not_be_fetched_is_named_all_the_same(has_log: bool, advice: str) -> None:
    failure = Failure("w-1", "gpu", "setup_commands[0]", "exit status 1", has_log)
    (found,) = diagnose(replace(WELL, failures=(failure,)))
    assert advice in found.advice


def test_failures_are_errors_only_while_something_is_missing() -> None:
    failures = (Failure("w-0", "gpu", "", "no capacity"),)
    short = [{"node_type": "gpu", "running": 1, "min_workers": 2}]
    (lacking,) = diagnose(replace(of_scaling(types=short), failures=failures))
    (enough,) = diagnose(replace(of_scaling(types=[{**short[0], "running": 2}]), failures=failures))
    assert lacking.what == enough.what == "node w-0 (gpu) failed: no capacity"
    assert (lacking.severity, enough.severity) == (Severity.ERROR, Severity.WARNING)


@pytest.mark.parametrize(
    ("kind", "words"), [("tmpfs", "memory file system (tmpfs)"), ("nfs", "network file system (nfs)")]
)
def test_a_folder_that_does_not_last_or_is_far_away_is_told(kind: str, words: str) -> None:
    (found,) = diagnose(of_head(file_system=kind))
    assert found.severity is Severity.WARNING
    assert words in found.what
    assert "node_dir" in found.advice
    assert diagnose(of_head(file_system="ext2/ext3")) == []
