"""Applications that the tests deploy by their import paths."""

from __future__ import annotations

from typing import Any

from runtime import serve


@serve.deployment(ray_actor_options={"num_cpus": 0}, max_ongoing_requests=3)
class Greeter:
    def __init__(self, greeting: str = "hello", size: int = 1) -> None:
        self.greeting = greeting
        self.size = size

    def reconfigure(self, config: dict[str, Any]) -> None:
        self.greeting = config["greeting"]

    async def __call__(self, request: Any) -> str:
        return " ".join([self.greeting] * self.size)


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Front:
    def __init__(self, greeter: Any) -> None:
        self.greeter = greeter

    async def __call__(self, request: Any) -> str:
        return "front"


app = Front.bind(Greeter.bind())
single = Greeter.bind()


def sized(args: dict[str, str]) -> Any:
    return Greeter.bind(size=int(args["size"]))
