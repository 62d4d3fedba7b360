"""Progress bars of tasks, at the driver."""

from __future__ import annotations

import importlib
import io
import json
import re
from typing import Any

import pytest

from runtime._process import progress
from tests.polling import eventually
from tests.under_test import NAME, ray

tqdm_ray: Any = importlib.import_module(f"{NAME}.experimental.tqdm_ray")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def state(name: str, x: int, closed: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "x": x, "pos": 0, "desc": name, "total": 4, "unit": "it", "ip": "10.0.0.1", "pid": 7, "uuid": name,
        "closed": closed, **more,
    }  # fmt: skip


def test_bars_are_drawn_below_other_lines() -> None:
    out = Terminal()
    bars = progress.BarManager("10.0.0.1", out)
    bars.process_state_update(state("one", 1))
    assert "(pid=7) one:  25%|#####               | 1/4" in out.getvalue()
    bars.process_state_update(state("two", 2, ip="10.0.0.2"))
    assert "(pid=7, ip=10.0.0.2) two:  50%" in out.getvalue()
    assert len(bars.bar_groups) == 2
    bars.hide_bars()
    assert out.getvalue().endswith("\x1b[F\x1b[K" * 2)
    bars.hide_bars()
    assert bars.num_hides == 1
    bars.unhide_bars()
    assert out.getvalue().count("one:  25%") == 3
    bars.process_state_update(state("one", 4, closed=True))
    assert "one: 100%" in out.getvalue()
    assert len(bars.bars) == 1


def test_lines_of_libraries_end_when_nobody_prints() -> None:
    out = Terminal()
    bars = progress.BarManager("10.0.0.1", out)
    bars.show_lines("ds", ["ds: 1 row", "  map: 1 task"])
    assert out.getvalue() == "ds: 1 row\n  map: 1 task\n"
    bars.hide_bars()
    bars.remove_lines("ds", ["ds: done"])
    assert out.getvalue().endswith("\x1b[F\x1b[K" * 2)
    bars.unhide_bars()
    assert out.getvalue().endswith("\x1b[F\x1b[Kds: done\n")
    bars.remove_lines("ds", ["never shown"])
    assert out.getvalue().endswith("ds: done\n")


def test_without_a_terminal_a_bar_is_printed_when_it_ends() -> None:
    out = io.StringIO()
    bars = progress.BarManager("10.0.0.1", out)
    assert bars.take_line(progress.TOKEN + json.dumps(state("one", 1)))
    assert out.getvalue() == ""
    assert bars.take_line(progress.TOKEN + json.dumps(state("one", 4, closed=True, total=None)))
    assert out.getvalue().startswith("(pid=7) one: 4it")
    assert not bars.take_line("a line")
    assert not bars.take_line(progress.TOKEN + "{")


@pytest.mark.usefixtures("session")
def test_a_bar_of_a_task_reaches_the_driver(capsys: Any) -> None:
    @ray.remote
    def work() -> int:
        bar = tqdm_ray.tqdm(range(3), desc="work", flush_interval_s=0)
        count = sum(1 for _ in bar)
        bar.close()
        return count

    assert ray.get(work.remote()) == 3
    printed = ""

    def shown() -> bool:
        nonlocal printed
        printed += capsys.readouterr().err
        return bool(re.search(r"work: .*\b3(\.00)?/3(\.00)?\b", printed))

    assert eventually(shown)
    assert "magic" not in printed


def test_the_interface_of_a_bar() -> None:
    with tqdm_ray.tqdm(total=5, desc="own") as bar:
        bar.update(2)
        bar.set_description("renamed")
        bar.refresh()
        assert bar.n == 2
        assert bar.total == 5
        bar.total = 6
    with pytest.raises(ValueError, match="iterable"):
        list(tqdm_ray.tqdm(total=1))
    assert list(tqdm_ray.tqdm(iter([1, 2]))) == [1, 2]
