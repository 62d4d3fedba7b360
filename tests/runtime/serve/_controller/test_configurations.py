"""Configurations that follow each other, without a cluster."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Mapping
from typing import Any

from runtime.serve._controller.building import announced
from runtime.serve._controller.configurations import Configurations
from runtime.serve._core.requests import Deploy, Spoil
from runtime.serve._core.specs import ApplicationSpec

LIMIT_S = 10.0


class Memory:
    """Keeps things here. The removal of a configuration takes until `may_remove` is set."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] | None = None
        self.packages: set[str] = set()
        self.removes = threading.Event()
        self.may_remove = threading.Event()

    def keep_config(self, config: Mapping[str, Any] | None) -> None:
        if config is None:
            self.removes.set()
            assert self.may_remove.wait(LIMIT_S)
        self.kept = None if config is None else dict(config)

    def config(self) -> dict[str, Any] | None:
        return self.kept

    def held(self) -> set[str]:
        return self.packages

    def hold(self, packages: set[str]) -> None:
        self.packages = packages


class Site:
    """`gates`: the builds of an application wait for it."""

    def __init__(self) -> None:
        self.kept = Memory()
        self.asked: list[Any] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.broken: set[str] = set()
        self.configurations = Configurations(self.request, self.kept, self.build)

    def request(self, what: Any) -> concurrent.futures.Future[Any]:
        self.asked.append(what)
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        done.set_result(None)
        return done

    async def build(self, declared: Mapping[str, Any]) -> ApplicationSpec:
        name = declared["name"]
        if name in self.gates:
            await self.gates[name].wait()
        if name in self.broken:
            raise ValueError("it cannot be made")
        return announced(declared)

    def names(self, kind: type[Deploy]) -> list[str]:
        return [spec.name for what in self.asked if isinstance(what, kind) for spec in what.specs]

    async def until_kept_no_more(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            while self.kept.kept is not None:  # noqa: ASYNC110 - another thread sets it
                await asyncio.sleep(0.002)


def package(digit: str) -> str:
    return f"_ray_pkg_{digit * 64}.zip"


def config(name: str, digit: str) -> dict[str, Any]:
    env = {"working_dir": f"gcs://{package(digit)}"}
    return {"applications": [{"name": name, "import_path": "module:app", "runtime_env": env}]}


def test_the_end_of_one_configuration_does_not_remove_the_next() -> None:
    async def main() -> None:
        site = Site()
        site.gates["second"] = asyncio.Event()
        await site.configurations.deploy(config("first", "1"))
        assert await asyncio.to_thread(site.kept.removes.wait, LIMIT_S)
        following = asyncio.create_task(site.configurations.deploy(config("second", "2")))
        await asyncio.sleep(0.02)
        site.kept.may_remove.set()
        await following
        assert site.kept.kept == config("second", "2")
        site.gates["second"].set()
        await site.until_kept_no_more()
        assert site.names(Deploy) == ["first", "second"]

    asyncio.run(main())


def test_packages_are_held_until_what_replaces_their_application_is_built() -> None:
    async def main() -> None:
        site = Site()
        site.kept.may_remove.set()
        await site.configurations.deploy(config("app", "1"))
        await site.until_kept_no_more()
        assert site.kept.packages == {package("1")}
        site.gates["app"] = asyncio.Event()
        site.broken.add("app")
        await site.configurations.deploy(config("app", "2"))
        assert site.kept.packages == {package("1"), package("2")}
        site.gates["app"].set()
        await site.until_kept_no_more()
        assert any(isinstance(what, Spoil) for what in site.asked)
        assert site.kept.packages == {package("1"), package("2")}  # the first one still serves
        site.broken.clear()
        await site.configurations.deploy(config("app", "3"))
        await site.until_kept_no_more()
        await site.configurations.stop()  # waits for the end of the turn
        assert site.kept.packages == {package("3")}

    asyncio.run(main())
