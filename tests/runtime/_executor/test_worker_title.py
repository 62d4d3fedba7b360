"""Which titles a worker shows, and when it changes them."""

from __future__ import annotations

from runtime._executor.worker_title import WorkerTitle
from runtime._wire.messages.worker import ActorSetup
from tests.runtime._executor.stand_ins import push


class Shown:
    def __init__(self) -> None:
        self.titles: list[str] = []
        self.names: list[str] = []

    def show(self, title: str) -> None:
        self.titles.append(title)

    def name(self, title: str) -> None:
        self.names.append(title)


def test_tasks() -> None:
    shown = Shown()
    title = WorkerTitle(shown)
    title.runs(push(), "f")
    title.rests()
    assert shown.titles == shown.names == ["ray::IDLE", "ray::f", "ray::IDLE"]


def test_an_actor_names_its_process_once() -> None:
    shown = Shown()
    title = WorkerTitle(shown)
    setup = ActorSetup(b"a" * 16, name="", namespace="", class_name="A", max_concurrency=1)
    title.runs(push(0, "__init__", b"class", actor=setup), "A.__init__")
    for name in ("A.one", "A.other"):
        title.runs(push(1, "one"), name)
    title.rests()
    assert shown.titles == ["ray::IDLE", "ray::A.__init__", "ray::A.one", "ray::A.other", "ray::A"]
    assert shown.names == ["ray::IDLE", "ray::A", "ray::A"]
