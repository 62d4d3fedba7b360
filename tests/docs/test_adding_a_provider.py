"""docs/adding-a-provider.md names every member of the protocol, and places that exist."""

from __future__ import annotations

import re
from pathlib import Path

from clusterctl.providers import protocol

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "adding-a-provider.md").read_text()


def test_its_table_has_every_member_of_the_protocol() -> None:
    table = TEXT.partition("| member | what it does |")[2].partition("\n\n")[0]
    names = set(
        re.findall(r"`(\w+)[(`]", "\n".join(row.split("|")[1] for row in table.splitlines() if "|" in row))
    )
    assert names == protocol.MEMBERS


def test_its_places_exist() -> None:
    places = set(re.findall(r"`((?:clusterctl|autoscaler|tests|docs|cluster-configs)/[\w./-]+)`", TEXT))
    known = {place for place in places if "NAME" not in place}
    assert len(known) > 10
    assert [place for place in sorted(known) if not (ROOT / place).exists()] == []
