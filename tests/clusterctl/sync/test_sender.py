"""What travels, decided from two lists."""

from __future__ import annotations

from clusterctl.sync.manifest import FILE, FOLDER, LINK, Entry
from clusterctl.sync.sender import There, changes

WANTED = {
    entry.path: entry
    for entry in (
        Entry("", FOLDER, mode=0o755),
        Entry("a", FILE, "A", 0o644, 10),
        Entry("b", FILE, "B", 0o755, 20),
        Entry("l", LINK, "a"),
    )
}
SAME = {"": (FOLDER, "", 0o755), "a": (FILE, "A", 0o644), "b": (FILE, "B", 0o755), "l": (LINK, "a", 0)}


def test_everything_at_first() -> None:
    change = changes(WANTED, There(), True)
    assert [e.path for e in change.files] == ["a", "b"]
    assert change.size_bytes == 30
    assert [e.path for e in change.links] == ["l"]


def test_nothing_when_it_is_all_there() -> None:
    change = changes(WANTED, There(SAME), True)
    assert (change.files, change.links, change.folders, change.modes, change.delete) == ((),) * 5


def test_only_what_changed() -> None:
    change = changes(WANTED, There({**SAME, "a": (FILE, "older", 0o644)}), True)
    assert [e.path for e in change.files] == ["a"]


def test_permissions_travel_without_the_content() -> None:
    change = changes(WANTED, There({**SAME, "b": (FILE, "B", 0o644)}), True)
    assert not change.files
    assert [e.path for e in change.modes] == ["b"]


def test_what_is_gone_here_goes_there_children_first() -> None:
    there = {**SAME, "old": (FOLDER, "", 0o755), "old/x": (FILE, "X", 0o644)}
    assert changes(WANTED, There(there), True).delete == ("old/x", "old")
    assert changes(WANTED, There(there), False).delete == ()


def test_a_folder_that_became_a_file_makes_room() -> None:
    there = {**SAME, "a": (FOLDER, "", 0o755), "a/x": (FILE, "X", 0o644)}
    change = changes(WANTED, There(there), True)
    assert change.delete == ("a/x", "a")
    assert [e.path for e in change.files] == ["a"]
