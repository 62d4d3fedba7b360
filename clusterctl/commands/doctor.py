"""`clusterctl doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from clusterctl import output

from .options import Cluster, Json, Which

if TYPE_CHECKING:
    from clusterctl.doctor.diagnosis import Finding
    from clusterctl.doctor.facts import Facts


def doctor(which: Which = None, cluster: Cluster = None, json: Json = False) -> None:
    """Diagnoses a cluster, and says what to do.

    Inspects the local state, the provider's listing, every machine (access, disk, clock, versions, daemons), the head's
    API, and nodes whose setup failed. Changes nothing. Exit status 1: it found a problem.

    \b
      clusterctl doctor
      clusterctl doctor cluster.yaml --json
    """
    from clusterctl.doctor.collect import collect
    from clusterctl.doctor.diagnosis import Finding, Severity, diagnose
    from clusterctl.errors import CliError, ExitCode, NotFound
    from clusterctl.home import Home
    from clusterctl.spec.load import load_file

    home = Home.find()
    wanted = cluster or which
    from_file = load_file(wanted) if wanted and wanted.endswith((".yaml", ".yml")) else None
    damage: CliError | None = None
    try:
        record = home.read(from_file.cluster_name) if from_file else home.resolve(wanted)
    except NotFound:
        raise
    except CliError as error:
        if from_file is None:
            raise
        record, damage = None, error
    spec = record.spec if record else from_file
    assert spec is not None
    file = wanted if from_file and wanted else record.spec_file if record else ""
    facts = collect(home, spec.cluster_name, spec, file, record)
    found = diagnose(facts)
    if damage is not None:
        found.insert(0, Finding(Severity.ERROR, damage.message, damage.hint))
    if json:
        output.as_json(
            {
                "cluster_name": facts.name,
                "findings": [
                    {"severity": f.severity.value, "about": f.about, "what": f.what, "advice": f.advice}
                    for f in found
                ],
            }
        )
    else:
        _print(facts, found)
    if any(finding.severity is Severity.ERROR for finding in found):
        raise typer.Exit(ExitCode.FAILURE)


def _print(facts: Facts, found: list[Finding]) -> None:
    import sys

    from clusterctl.doctor.diagnosis import Severity

    colours = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
    for finding in found:
        kind = output.styled(f"{finding.severity.value}: ", colours[finding.severity], sys.stdout)
        output.say(f"{kind}{finding.what}")
        if finding.advice:
            output.say(f"  -> {finding.advice}")
    if not found:
        machines = len(facts.machines)
        output.say(
            f"cluster '{facts.name}' is well: {machines} machine{'' if machines == 1 else 's'} looked at, "
            "the head answers"
        )
