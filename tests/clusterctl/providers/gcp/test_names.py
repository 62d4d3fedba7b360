"""Tags as labels, and names."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from clusterctl.providers.gcp import names

TAGS = st.dictionaries(
    st.sampled_from(["clusterctl-cluster-id", "clusterctl-node-type", "clusterctl-token"]),
    st.text(max_size=80),
)


@given(TAGS)
def test_tags_are_valid_labels_and_read_back_as_they_were(tags: dict[str, str]) -> None:
    labels, long = names.write(tags)
    for key, value in labels.items():
        assert re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key)
        assert re.fullmatch(r"[a-z0-9_-]{0,63}", value)
    assert names.read(labels, long) == tags


def test_what_people_choose_stays_legible() -> None:
    assert names.label("my-cluster-1a2b") == "my-cluster-1a2b"
    assert names.label("GPU.big_1") == "_47_50_55_2ebig_5f1"


def test_a_long_value_is_found_by_its_digest_and_read_from_the_metadata() -> None:
    tags = {"clusterctl-cluster-id": "X" * 70}
    labels, long = names.write(tags)
    assert labels["clusterctl-cluster-id"].startswith("__")
    assert labels["clusterctl-cluster-id"] in names.filter_of(tags)
    assert names.read(labels, long) == tags


def test_labels_and_metadata_that_somebody_else_made_do_no_harm() -> None:
    assert names.read({"team": "a_zz", "clusterctl-role": "head"}, "no json") == {"clusterctl-role": "head"}


@given(st.text(max_size=80), st.integers(2, 40))
def test_a_slug_begins_a_valid_name(text: str, most: int) -> None:
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", f"{names.slug(text, most)}-0")


def test_ids_lead_back_to_the_place() -> None:
    assert names.place(names.machine_id("us-west1-a", "one")) == ("us-west1-a", "one")
    assert names.place("no-such-machine") == ("", "no-such-machine")


def test_the_same_request_has_the_same_id() -> None:
    assert names.request_id("a", "b") == names.request_id("a", "b") != names.request_id("ab")
