"""How fast a cluster of a cloud comes up, and goes: `python scripts/bench/clouds.py`. Needs root.

The clouds are those of the tests: servers of their APIs on this machine, whose instances are hosts of network
namespaces. They answer at once and boot in no time, so this is what our side takes: `up` with one worker, `up` once
more, and `down`, and how often the operator's side asked the cloud meanwhile. Prints one line of JSON.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from figures import Figures, run
from launcher import NO_OP_GOAL_S, Operator

from tests.testbed.aws_hosts import AwsCloud
from tests.testbed.gcp.catalog import PROJECT
from tests.testbed.gcp.server import Cloud
from tests.testbed.sshd import missing

SPEC = """\
cluster_name: bench
provider: {{{provider}}}
head_node_type: head
max_workers: 1
available_node_types:
  head: {{resources: {{CPU: 0}}, node_config: {{{config}}}}}
  worker: {{min_workers: 1, max_workers: 1, node_config: {{{config}}}}}
"""


@contextlib.contextmanager
def aws() -> Iterator[tuple[str, Callable[[], int]]]:
    """The spec, and how often people asked."""
    with AwsCloud() as cloud, cloud.inside():
        where = f"type: aws, region: us-east-1, endpoint_url: '{cloud.aws.url}'"
        yield SPEC.format(provider=where, config="InstanceType: t3.medium"), cloud.aws.asked_by_people.total


@contextlib.contextmanager
def gcp() -> Iterator[tuple[str, None]]:
    """The spec. Who asks is not known: there are no credentials."""
    with Cloud(with_hosts=True) as cloud, cloud.inside():
        where = f"type: gcp, region: us-west1, project_id: {PROJECT}, endpoint: '{cloud.endpoint}'"
        yield SPEC.format(provider=where, config="machineType: e2-standard-2"), None


def measure(figures: Figures, name: str) -> None:
    """One cluster, from nothing and back."""
    with tempfile.TemporaryDirectory(prefix="clouds-bench-") as place, CLOUDS[name]() as (text, asked):
        folder = Path(place)
        (folder / "bench.yaml").write_text(text)
        operator = Operator(folder)
        try:
            for what, command, goal in (
                ("up", "up", None),
                ("up once more", "up", NO_OP_GOAL_S),
                ("down", "down", None),
            ):
                before = asked() if asked else 0
                took = operator.seconds(command, "-y", "bench.yaml")
                note = f"the cloud was asked {asked() - before} times" if asked else ""
                figures.add(f"{what}, {name}", took, "s", note, at_most=goal)
        except BaseException:
            with contextlib.suppress(RuntimeError):
                operator.seconds("down", "-y", "bench.yaml")
            raise


CLOUDS = {"aws": aws, "gcp": gcp}


def main() -> int:
    if reason := missing():
        sys.exit(f"{reason}: run this as root on a Linux machine that has them")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    figures = Figures("clouds")
    return run(figures, {name: (lambda name=name: measure(figures, name)) for name in CLOUDS})


if __name__ == "__main__":
    sys.exit(main())
