"""The lines about spilling."""

from __future__ import annotations

from runtime._store.spill_report import MIB, SpillReport


def spill(report: SpillReport, *sizes_mib: int) -> list[str]:
    """Writes objects side by side, in one second; returns the lines."""
    for _ in sizes_mib:
        report.begun(10.0)
    return [line for size in sizes_mib if (line := report.ended(size * MIB, 11.0))]


def test_the_first_line_says_how_to_turn_it_off() -> None:
    report = SpillReport(100 * MIB)
    assert spill(report, 50) == []
    [first] = spill(report, 50)
    assert first.startswith("Spilled 100 MiB, 2 objects, write throughput 50 MiB/s.")
    assert "RAY_verbose_spill_logs=0" in first


def test_the_next_line_comes_when_it_is_twice_as_much() -> None:
    report = SpillReport(100 * MIB)
    spill(report, 150)
    assert spill(report, 49) == []
    assert spill(report, 1) == ["Spilled 200 MiB, 3 objects, write throughput 67 MiB/s."]
    assert spill(report, 199) == []


def test_nothing_is_said_of_failures_or_if_it_is_turned_off() -> None:
    report = SpillReport(1)
    assert spill(report, 0) == []
    assert spill(SpillReport(0), 1000) == []
