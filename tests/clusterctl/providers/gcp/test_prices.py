"""What Google's machines cost: by the catalogue, asked over HTTP, and by the table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from autoscaler.provider import ON_DEMAND, SPOT, NodeType
from clusterctl.providers import prices as kept
from clusterctl.providers.gcp import prices
from clusterctl.providers.gcp.provider import GcpMachines
from clusterctl.providers.protocol import Seat
from tests.clusterctl.providers.gcp.cluster import GPU
from tests.polling import eventually
from tests.testbed.gcp.billing import sku
from tests.testbed.gcp.server import Cloud

PLAIN = NodeType("w", node_config={"machineType": "e2-standard-4"}, spot=True)
TOLD = [
    sku("E2 Instance Core running in Americas", 20_000_000),
    sku("E2 Instance Ram running in Americas", 3_000_000, unit="GiBy.h"),
    sku("Spot Preemptible E2 Instance Core running in Americas", 6_000_000, "Preemptible"),
    sku("Spot Preemptible E2 Instance Ram running in Americas", 1_000_000, "Preemptible", unit="GiBy.h"),
    sku("E2 Custom Instance Core running in Americas", 900_000_000),
    sku("E2 Sole Tenancy Instance Core running in Americas", 900_000_000),
    sku("Commitment v1: E2 Cpu in Americas for 1 Year", 900_000_000, "Commit1Yr"),
    sku("E2 Instance Core running in Netherlands", 900_000_000, regions=("europe-west4",)),
    sku("N1 Predefined Instance Core running in Americas", 30_000_000),
    sku("N1 Predefined Instance Ram running in Americas", 4_000_000, unit="GiBy.h"),
    sku("Nvidia Tesla T4 GPU running in Americas", 350_000_000),
]


@pytest.fixture
def silent(cloud: Cloud) -> Iterator[None]:
    """The catalogue does not answer while the test lasts."""
    cloud.billing.may_answer.clear()
    yield
    cloud.billing.may_answer.set()
    assert eventually(lambda: not any(thread.name == "prices" for thread in threading.enumerate()))


def of_markets(provider: GcpMachines, kind: NodeType) -> dict[str, float]:
    return {offer.market: offer.price for offer in provider.offers(kind)}


def test_offers_cost_what_the_catalogue_says(cloud: Cloud, make: Callable[..., GcpMachines]) -> None:
    cloud.billing.skus = TOLD
    provider = make()
    assert of_markets(provider, PLAIN) == {
        SPOT: pytest.approx(4 * 0.006 + 16 * 0.001),
        ON_DEMAND: pytest.approx(4 * 0.02 + 16 * 0.003),
    }
    assert provider.capabilities.price_source.startswith("Google's catalogue of 20")
    asked = cloud.billing.asked
    assert of_markets(make(cluster_id="c-2"), PLAIN)[ON_DEMAND] == pytest.approx(0.128)
    assert cloud.billing.asked == asked > 1, "all pages are read, and kept for others"


def test_what_the_catalogue_lacks_is_in_the_table(cloud: Cloud, provider: GcpMachines) -> None:
    cloud.billing.skus = TOLD
    found = of_markets(provider, GPU)
    assert found[ON_DEMAND] == pytest.approx(2 * 0.03 + 7.5 * 0.004 + 0.35)
    parts = prices.parts_of("n1-standard-2", 2, 7.5, {"nvidia-tesla-t4": 1})
    assert found[SPOT] == prices.of_table(parts, "us-west1", SPOT)


def test_who_may_not_ask_has_the_table(cloud: Cloud, provider: GcpMachines) -> None:
    cloud.billing.status = 403
    parts = prices.parts_of("e2-standard-4", 4, 16, {})
    assert of_markets(provider, PLAIN)[ON_DEMAND] == prices.of_table(parts, "us-west1", ON_DEMAND)
    assert prices.table().as_of in provider.capabilities.price_source
    provider.offers(PLAIN)
    assert cloud.billing.asked == 1, "who refused is left alone for a while"


@pytest.mark.usefixtures("silent")
def test_a_catalogue_that_is_silent_delays_nobody(
    cloud: Cloud, provider: GcpMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider._prices._told, "_patience_s", 0.05)
    for _ in range(3):
        assert of_markets(provider, PLAIN)[ON_DEMAND] > 0
    assert prices.table().as_of in provider.capabilities.price_source
    assert cloud.billing.asked == 1


def test_old_prices_serve_until_there_are_new_ones(
    cloud: Cloud, make: Callable[..., GcpMachines], monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.billing.skus = TOLD
    make().offers(PLAIN)
    now = kept.time.time()
    monkeypatch.setattr(kept.time, "time", lambda: now + 3 * 86400)
    cloud.billing.skus = [sku("E2 Instance Core running in Americas", 1), *TOLD[1:]]
    later = make()
    assert of_markets(later, PLAIN)[ON_DEMAND] == pytest.approx(0.128)
    assert "(3 days old)" in later.capabilities.price_source
    assert eventually(lambda: of_markets(later, PLAIN)[ON_DEMAND] < 0.1)
    assert "old" not in make().capabilities.price_source


def test_the_head_gets_the_prices_that_the_operator_was_told(
    cloud: Cloud, make: Callable[..., GcpMachines]
) -> None:
    cloud.billing.skus = TOLD
    operators = make()
    operators.offers(PLAIN)
    files = dict(operators.for_head().files)
    (name,) = (name for name in files if name.endswith("prices.json"))
    cloud.billing.status = 403
    heads = make(seat=Seat.HEAD, folder=files[name].removesuffix(name))
    assert of_markets(heads, PLAIN)[ON_DEMAND] == pytest.approx(0.128)


def test_a_limit_that_rules_out_a_market_is_said(provider: GcpMachines) -> None:
    def limited(most: float) -> list[tuple[bool, str]]:
        kind = NodeType("w", node_config={"machineType": "e2-standard-4"}, spot=True, max_price=most)
        return [(problem.fatal, problem.what) for problem in provider.check([kind])]

    assert limited(9.0) == []
    ((fatal, what),) = limited(0.1)
    assert not fatal
    assert "on-demand costs 0.134" in what
    ((fatal, what),) = limited(0.001)
    assert fatal
    assert "max_price is 0.001" in what


@pytest.mark.parametrize(
    ("description", "part"),
    [
        ("Compute optimized Core running in Americas", "c2 cpu"),
        ("Compute optimized Instance Ram running in Paris", "c2 memory"),
        ("N2D AMD Instance Core running in Americas", "n2d cpu"),
        ("T2A Arm Instance Ram running in Iowa", "t2a memory"),
        ("Memory-optimized Instance Core running in Americas", "m1 cpu"),
        ("Spot Preemptible C3 Instance Core running in Virginia", "c3 cpu"),
        ("Preemptible N2 Instance Core running in Americas", "n2 cpu"),
        ("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas", "nvidia-tesla-t4"),
        ("Nvidia Tesla A100 80GB GPU running in Americas", "nvidia-a100-80gb"),
        ("Nvidia Tesla A100 GPU running in Americas", "nvidia-tesla-a100"),
        ("Nvidia L4 GPU running in Dallas", "nvidia-l4"),
        ("Nvidia H100 80GB GPU running in Americas", "nvidia-h100-80gb"),
        ("N2 Custom Instance Core running in Americas", ""),
        ("Sole Tenancy Instance Ram running in Jakarta", ""),
        ("Reserved Nvidia Tesla A100 GPU in Americas", ""),
        ("Licensing Fee for Windows Server 2012 BYOL (CPU cost)", ""),
        ("SSD backed Local Storage in Iowa", ""),
    ],
)
def test_entries_of_the_catalogue(description: str, part: str) -> None:
    assert prices._part_of(description) == part


@pytest.mark.parametrize(
    "kind", ["e2-medium", "n2-standard-8", "n2-custom-4-8192", "custom-4-8192", "c3-highcpu-4"]
)
def test_prices_of_the_table_grow_with_the_machine(kind: str) -> None:
    plain = prices.parts_of(kind, 4, 8, {})
    small = prices.of_table(plain, "us-central1", ON_DEMAND)
    with_gpu = prices.of_table(plain | {"nvidia-tesla-t4": 1.0}, "us-central1", ON_DEMAND)
    elsewhere = prices.of_table(plain, "europe-west4", ON_DEMAND)
    spot = prices.of_table(plain, "us-central1", SPOT)
    assert small is not None
    assert with_gpu is not None
    assert elsewhere is not None
    assert spot is not None
    assert spot < small < elsewhere < with_gpu


@pytest.mark.parametrize(
    ("kind", "gpus", "region"),
    [
        ("zz9-standard-2", {}, "us-central1"),
        ("e2-small", {"new": 1.0}, "us-central1"),
        ("e2-small", {}, "moon-1"),
    ],
)
def test_what_the_table_does_not_say(kind: str, gpus: dict[str, float], region: str) -> None:
    assert prices.of_table(prices.parts_of(kind, 2, 8, gpus), region, ON_DEMAND) is None
