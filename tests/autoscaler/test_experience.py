from __future__ import annotations

from dataclasses import replace

from autoscaler.config import AutoscalerConfig
from autoscaler.experience import FAILING, Experience
from autoscaler.health import TRIP_AT
from autoscaler.instances import InstanceState
from autoscaler.memory import Memory
from autoscaler.observe import DiedYoung, Lasted, OfferRefused, OfferServed, SetupKnown
from autoscaler.provider import SPOT, Capacity, Offer
from runtime._core.resources import to_units
from tests.autoscaler.build import NOW, SMALL, config, instance, node

A, B = Offer("a", price=1.0), Offer("b", price=2.0)
OFFERS = {"small": [A, B]}
SETTINGS = config(SMALL, config_hashes={"small": "1-new"})


def fresh(memory: Memory | None = None, settings: AutoscalerConfig = SETTINGS) -> Experience:
    return Experience(memory or Memory(), settings)


def open_zones(known: Experience, now: float = NOW) -> list[str]:
    return [offer.zone for offer in known.markets(SETTINGS, OFFERS, {}, now)["small"].offers]


def test_a_refused_offer_rests_until_it_is_served_again() -> None:
    known = fresh()
    assert open_zones(known) == ["a", "b"]
    known.take(OfferRefused("small", A, Capacity("none")), NOW)
    assert open_zones(known) == ["b"]
    (penalty,) = known.penalties(NOW)
    assert (penalty.zone, penalty.reason) == ("a", "none")
    assert open_zones(known, penalty.until_s) == ["a", "b"]
    known.take(OfferServed("small", A), NOW)
    assert open_zones(known) == ["a", "b"]


def test_a_type_whose_platform_says_nothing_is_closed() -> None:
    market = fresh().markets(SETTINGS, {}, {"small": "the platform is asked"}, NOW)["small"]
    assert (market.is_open, market.blocked) == (False, "the platform is asked")


def test_a_failed_setup_rests_the_type_and_many_stop_all_launches() -> None:
    known = fresh()
    queued = instance("n", state=InstanceState.QUEUED, offer=A)
    assert known.objection(queued, NOW) == ""
    known.take(SetupKnown("small", ok=False), NOW)
    assert "setup failed once" in known.held(NOW)["small"]
    assert "setup failed once" in known.objection(queued, NOW)
    assert known.allowance(NOW, 0) is None
    for _ in range(TRIP_AT):
        known.take(SetupKnown("small", ok=False), NOW)
    assert known.allowance(NOW, 0) == 0
    assert known.objection(queued, NOW) == FAILING
    assert [one.what for one in known.resting(NOW)] == ["small", "all launches"]
    known.take(SetupKnown("small", ok=True), NOW + 1.0)
    assert known.resting(NOW + 1.0) == []


def test_a_wish_whose_offer_was_refused_meanwhile_is_objected_to() -> None:
    known = fresh()
    known.take(OfferRefused("small", A, Capacity("none")), NOW)
    assert "was refused" in known.objection(instance("n", state=InstanceState.QUEUED, offer=A), NOW)
    assert known.objection(instance("n", state=InstanceState.QUEUED, offer=B), NOW) == ""


def test_early_deaths_blame_the_type_but_those_of_spot_machines_the_offer() -> None:
    sound, spot = fresh(), fresh()
    for wave in range(3):
        at_s = NOW + wave
        lost = instance("n", config_hash="1-new", allocated_s=at_s - 0.5)
        sound.take(DiedYoung(lost, 5.0), at_s)
        taken = replace(lost, offer=Offer("a", SPOT, 1.0))
        spot.take(DiedYoung(taken, 5.0), at_s)
    assert "died 3 times in a row" in sound.held(NOW + 2.0)["small"]
    assert sound.penalties(NOW + 2.0) == []
    assert spot.held(NOW + 2.0) == {}
    assert [penalty.lost for penalty in spot.penalties(NOW + 2.0)] == [True]
    sound.take(Lasted(replace(lost, joined_s=NOW + 3.0)), NOW + 700.0)
    assert sound.held(NOW + 3.0) == {}


def test_a_death_under_another_configuration_says_nothing() -> None:
    known = fresh()
    for wave in range(3):
        lost = instance("n", config_hash="1-old", allocated_s=NOW + wave - 0.5)
        known.take(DiedYoung(lost, 5.0), NOW + wave)
    assert known.held(NOW + 2.0) == {}


def test_whoever_corrects_a_type_need_not_wait() -> None:
    known = fresh()
    known.take(SetupKnown("small", ok=False), NOW)
    assert "small" in known.held(NOW)
    known.configure(config(SMALL, config_hashes={"small": "1-newer"}))
    assert known.held(NOW) == {}


def test_what_nodes_bring_is_kept_for_their_configuration() -> None:
    known = fresh()
    less = {"CPU": 1.5}
    known.learn([instance("n", config_hash="1-new")], [node("n", total=less)])
    assert known.profiles(SETTINGS, {})["small"].resources == to_units(less)
    again = fresh(Memory.from_json(known.remember(()).to_json()))
    assert again.profiles(SETTINGS, {})["small"].resources == to_units(less)
    other = config(SMALL, config_hashes={"small": "1-newer"})
    again.configure(other)
    assert again.profiles(other, {})["small"].resources == to_units(SMALL.resources)


def test_what_is_remembered_is_known_to_the_next_process() -> None:
    known = fresh()
    known.take(OfferRefused("small", A, Capacity("none")), NOW)
    known.take(SetupKnown("small", ok=False), NOW)
    one = instance("n")
    memory = Memory.from_json(known.remember([one]).to_json())
    assert memory.instances == (one,)
    again = fresh(memory)
    assert again.penalties(NOW) == known.penalties(NOW)
    assert again.held(NOW) == known.held(NOW)
