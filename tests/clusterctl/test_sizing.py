"""What the options of `clusterctl simulate` make of a spec and a trace."""

from __future__ import annotations

from autoscaler.provider import SPOT, Offer
from autoscaler.rehearsal.trace import Offered, Tasks, Trace
from autoscaler.simulation import SimulatedProvider
from clusterctl.launcher.node_types import autoscaler_config
from clusterctl.sizing import priced, with_spot
from clusterctl.spec.load import load_text

SPEC = load_text(
    """
cluster_name: small
provider: {type: local}
head_node_type: head
available_node_types:
  head: {resources: {CPU: 1}}
  cpu: {resources: {CPU: 4}, min_workers: 2, max_workers: 5}
  gpu: {resources: {CPU: 4, GPU: 1}, max_workers: 3}
"""
)
CONFIG = autoscaler_config(SPEC, "id", {}, "")
TRACE = Trace(tasks=[Tasks(duration_s=1.0)], offers={"gpu": [Offered(price=3.0, market="spot")]})


def test_the_options_price_wins_over_the_trace_and_that_over_the_platforms() -> None:
    offers = {name: (Offer("a", SPOT, 0.5), Offer("b", price=1.5)) for name in ("head", "cpu", "gpu")}
    provider = SimulatedProvider("id", offers=offers)
    trace = priced(TRACE, CONFIG, provider, ["cpu=2"])
    assert trace.offers["cpu"] == [Offered(price=2.0)]
    assert trace.offers["gpu"] == TRACE.offers["gpu"]
    assert trace.offers["head"] == [
        Offered(price=0.5, zone="a", market="spot"),
        Offered(price=1.5, zone="b"),
    ]
    assert priced(TRACE, CONFIG, SimulatedProvider("id"), []).offers == TRACE.offers, "it knows no prices"


def test_what_the_spot_market_offers_is_taken_there() -> None:
    assert [kind.name for kind in with_spot(CONFIG, TRACE).node_types if kind.spot] == ["gpu"]
