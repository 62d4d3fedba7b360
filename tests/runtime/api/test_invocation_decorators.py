"""`__ray_invocation_decorator__`: functions and methods that wrap their own `.remote()`."""

from __future__ import annotations

from typing import Any

import runtime as ray


def tagging(call: Any) -> Any:
    def inner(args: Any, kwargs: Any) -> Any:
        return "wrapped", call(args, kwargs), tuple(args), dict(kwargs)

    return inner


def doubling(call: Any) -> Any:
    def inner(args: Any, kwargs: Any) -> Any:
        return call([2 * arg for arg in args], kwargs)

    return inner


def identity(x: int) -> int:
    return x


identity.__ray_invocation_decorator__ = tagging  # type: ignore[attr-defined]


class Counter:
    def tagged(self, x: int = 1) -> int:
        return x

    tagged.__ray_invocation_decorator__ = tagging  # type: ignore[attr-defined]

    def doubled(self, x: int) -> int:
        return x

    doubled.__ray_invocation_decorator__ = doubling  # type: ignore[attr-defined]

    def plain(self, x: int) -> int:
        return x


def test_a_function_wraps_its_calls(session: None) -> None:
    remote = ray.remote(identity)
    word, ref, args, kwargs = remote.remote(3)
    assert (word, ray.get(ref), args, kwargs) == ("wrapped", 3, (3,), {})
    word, ref, args, kwargs = remote.options(num_cpus=0.5).remote(x=4)
    assert (word, ray.get(ref), args, kwargs) == ("wrapped", 4, (), {"x": 4})


def test_methods_wrap_their_calls_and_others_do_not(session: None) -> None:
    counter = ray.remote(Counter).remote()
    word, ref, args, _ = counter.tagged.remote(5)
    assert (word, ray.get(ref), args) == ("wrapped", 5, (5,))
    assert ray.get(counter.doubled.options(name="twice").remote(4)) == 8
    assert ray.get(counter.plain.remote(4)) == 4


def test_the_decorator_travels_with_the_handle(session: None) -> None:
    @ray.remote
    def call(handle: Any) -> Any:
        return ray.get(handle.doubled.remote(21))

    counter = ray.remote(Counter).remote()
    assert ray.get(call.remote(counter)) == 42


def test_dir_of_an_actor_class_names_its_methods() -> None:
    assert {"tagged", "plain", "remote", "options"} <= set(dir(ray.remote(Counter)))
