"""Classes as actors: what they may be, what their handles offer, and what is refused with which words."""

from __future__ import annotations

import abc
import dataclasses
import functools
import typing

import pytest

from tests.gate import Gate
from tests.under_test import OWN, ray

pytestmark = pytest.mark.usefixtures("session")


class Plain:
    LIMIT = 3

    def __init__(self, start: int = 0, *rest: int, scale: int = 1) -> None:
        self.value = (start + sum(rest)) * scale

    def get(self) -> int:
        return self.value

    def add(self, amount: int, times: int = 1) -> int:
        self.value += amount * times
        return self.value

    @staticmethod
    def double(x: int) -> int:
        return 2 * x

    @classmethod
    def limit(cls, plus: int) -> int:
        return cls.LIMIT + plus

    def through_the_class(self) -> tuple[int, int, int]:
        return Remote.LIMIT, Remote.double(4), Remote.limit(1)


Remote: typing.Any = ray.remote(Plain)


class TestArguments:
    @pytest.mark.parametrize(
        ("args", "kwargs", "words"),
        [
            ((), {}, "missing a required argument"),
            ((1, 2, 3), {}, "too many positional arguments"),
            ((1,), {"other": 1}, "got an unexpected keyword argument"),
            ((1,), {"amount": 1}, "multiple values for argument"),
        ],
    )
    def test_a_call_that_does_not_fit_is_refused_where_it_is_made(
        self, args: typing.Any, kwargs: typing.Any, words: str
    ) -> None:
        with pytest.raises(TypeError, match=words):
            Remote.remote().add.remote(*args, **kwargs)

    def test_constructors_take_all_kinds_of_arguments(self) -> None:
        assert ray.get(Remote.remote(1, 2, 3, scale=2).get.remote()) == 12
        with pytest.raises(TypeError, match="got an unexpected keyword argument"):
            Remote.remote(1, unknown=1)

    def test_nothing_is_called_directly(self) -> None:
        with pytest.raises(TypeError, match="Actors cannot be instantiated directly"):
            Remote()
        with pytest.raises(TypeError, match="Actor methods cannot be called directly"):
            Remote.remote().get()

    def test_static_and_class_methods_are_methods(self) -> None:
        actor = Remote.remote()
        assert ray.get(actor.double.remote(2)) == 4
        assert ray.get(actor.limit.remote(2)) == 5

    def test_the_remote_class_has_the_attributes_of_the_class(self) -> None:
        assert Remote.LIMIT == 3
        assert Remote.double(2) == 4
        assert Remote.limit(2) == 5
        assert ray.get(Remote.remote().through_the_class.remote()) == (3, 8, 4)
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            _ = Remote.nothing

    def test_what_libraries_ask_of_the_remote_class(self) -> None:
        remote = ray.remote(num_cpus=2, max_restarts=1)(Plain)
        about = remote.__ray_metadata__
        assert (about.class_name, about.modified_class.__name__) == ("Plain", "Plain")
        assert about.modified_class(5).get() == 5
        assert remote.__ray_actor_class__ is Plain
        if OWN:
            assert (about.num_cpus, about.max_restarts, about.resources) == (2, 1, {})

    def test_completion_finds_what_the_class_has(self) -> None:
        assert {"LIMIT", "add", "double", "limit", "options", "remote"} <= set(dir(Remote))
        assert {"add", "double", "limit"} <= set(dir(Remote.remote()))

    def test_handles_have_methods_only(self) -> None:
        actor = Remote.remote()
        for name in ("LIMIT", "value", "nothing"):
            with pytest.raises(AttributeError, match=f"'ActorHandle' object has no attribute '{name}'"):
                getattr(actor, name)

    def test_underscored_remote_takes_arguments_and_options_apart(self) -> None:
        actor = Remote._remote(args=[5], kwargs={"scale": 2}, num_cpus=0.5)
        assert ray.get(actor.add._remote(args=[1], kwargs={"times": 3})) == 13


class TestKindsOfClasses:
    def test_an_actor_class_cannot_be_inherited_from(self) -> None:
        wanted = ray.actor.ActorClassInheritanceException
        with pytest.raises(wanted, match=r"[Ii]nheriting from actor classes is not currently supported"):

            class Child(Remote):  # type: ignore[misc]
                pass

    def test_abstract_classes_are_refused_and_their_children_work(self) -> None:
        class Base(abc.ABC):
            def __init__(self, x: int) -> None:
                self.x = x

            @abc.abstractmethod
            def value(self) -> int: ...

            def hello(self) -> str:
                return f"base {self.x}"

        class Child(Base):
            def value(self) -> int:
                return self.x + 1

            def hello(self) -> str:
                return super().hello() + "!"

        with pytest.raises(TypeError, match="Can't instantiate abstract class"):
            ray.remote(Base)
        actor = ray.remote(Child).remote(1)
        assert ray.get([actor.value.remote(), actor.hello.remote()]) == [2, "base 1!"]

    def test_dataclasses_slots_metaclasses_and_generics(self) -> None:
        @ray.remote
        @dataclasses.dataclass
        class Data:
            x: int
            y: int = 5

            def total(self) -> int:
                return self.x + self.y

        @ray.remote
        class Slots:
            __slots__ = ("x",)

            def __init__(self) -> None:
                self.x = 4

            def get(self) -> int:
                return self.x

        class Meta(type):
            def __new__(cls, name: str, bases: typing.Any, body: dict[str, typing.Any]) -> typing.Any:
                return super().__new__(cls, name, bases, {**body, "extra": lambda self: "extra"})

        @ray.remote
        class Made(metaclass=Meta):
            pass

        T = typing.TypeVar("T")

        @ray.remote
        class Box(typing.Generic[T]):
            def same(self, x: T) -> T:
                return x

        calls = [Data.remote(1).total, Slots.remote().get, Made.remote().extra]
        assert ray.get([call.remote() for call in calls]) == [6, 4, "extra"]
        assert ray.get(Box.remote().same.remote(2)) == 2


class TestMethodOptions:
    def test_words_of_refusals(self) -> None:
        actor = Remote.remote()
        with pytest.raises(TypeError, match="got an unexpected keyword argument"):
            actor.get.options(num_cpus=1).remote()
        with pytest.raises(TypeError):
            actor.get.options(name=5).remote()
        with pytest.raises(ValueError, match="num_returns must be >= 0"):
            actor.get.options(num_returns=-1).remote()
        with pytest.raises(ValueError, match="can only be used with generator functions"):
            actor.get.options(num_returns="streaming").remote()
        with pytest.raises(AssertionError, match="retry_exceptions can either be"):
            actor.get.options(retry_exceptions=3).remote()
        with pytest.raises(AssertionError, match="Unexpected keyword argument"):
            ray.method(num_cpus=1)

    def test_no_return_at_all(self) -> None:
        assert Remote.remote().get.options(num_returns=0).remote() is None

    def test_order_cannot_be_promised_for_calls_side_by_side(self) -> None:
        class Async:
            async def get(self) -> int:
                return 1

        with pytest.raises(ValueError, match="multi-threaded actors"):
            Remote.options(max_concurrency=2, allow_out_of_order_execution=False).remote()
        with pytest.raises(ValueError, match="async actors"):
            ray.remote(allow_out_of_order_execution=False)(Async).remote()

    @pytest.mark.parametrize("namespace", ["", 3])
    def test_namespaces_are_words(self, namespace: typing.Any) -> None:
        with pytest.raises((TypeError, ValueError), match="namespace"):
            Remote.options(name="named", namespace=namespace).remote()
        with pytest.raises((TypeError, ValueError), match="namespace"):
            ray.get_actor("named", namespace=namespace)

    @pytest.mark.skipif(not OWN, reason="ends the actor there")
    def test_groups_must_exist(self) -> None:
        @ray.remote(concurrency_groups={"io": 1})
        class Grouped:
            def get(self) -> int:
                return 1

        @ray.remote(concurrency_groups={"io": 1})
        class Wrong:
            @ray.method(concurrency_group="oi")
            def get(self) -> int:
                return 1

        with pytest.raises(ValueError, match="oi"):
            Grouped.remote().get.options(concurrency_group="oi").remote()
        with pytest.raises(ValueError, match="oi"):
            Wrong.remote()

    def test_out_of_order_execution_lets_calls_pass_one_that_waits(self) -> None:
        gate = Gate.remote()
        actor = Remote.options(allow_out_of_order_execution=True).remote()
        late = actor.add.remote(gate.pass_through.remote(1))
        assert ray.get(actor.get.remote()) == 0
        gate.open.remote()
        assert ray.get(late) == 1


def test_the_repr_of_an_actor_is_shown_in_errors() -> None:
    @ray.remote
    class Shown:
        def __repr__(self) -> str:
            return "Shown(7)"

        def fail(self) -> None:
            raise ValueError("x")

    actor = Shown.remote()
    with pytest.raises(ValueError, match=r"repr=Shown\(7\)"):
        ray.get(actor.fail.remote())
    assert f"Shown, {actor._actor_id.hex()})" in repr(actor)
    assert repr(actor).startswith("Actor(")


def test_names_of_calls() -> None:
    @ray.remote
    class Named:
        def names(self) -> tuple[str, str]:
            context = ray.get_runtime_context()
            return context.get_task_name(), context.get_task_function_name()

    actor = Named.remote()
    name, function = ray.get(actor.names.remote())
    assert name == "Named.names"
    assert function.endswith("test_actor_classes.Named.names")
    assert ray.get(actor.names.options(name="mine").remote())[0] == "mine"


class Hidden:
    """Its instances have attributes with the names of its methods."""

    def __init__(self) -> None:
        for name in ("items", "static", "of_class", "inherited", "partial", "__call__"):
            setattr(self, name, "an attribute")

    def __call__(self, x: int) -> int:
        return x + 1

    def inherited(self) -> str:
        return "inherited"


class Hiding(Hidden):
    def items(self) -> tuple[str, typing.Any]:
        return "items", self.items

    @staticmethod
    def static() -> str:
        return "static"

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__

    partial = functools.partialmethod(lambda self, x: f"partial {x}", 5)

    def replace(self) -> None:
        self.__dict__.update(replace=None, fails=str)

    def fails(self) -> None:
        raise ValueError("the method of the class")


class TestAttributesWithTheNamesOfMethods:
    def test_calls_go_to_the_class(self) -> None:
        actor = ray.remote(Hiding).remote()
        assert ray.get(actor.items.remote()) == ("items", "an attribute")
        names = ("static", "of_class", "inherited", "partial")
        called = ray.get([getattr(actor, name).remote() for name in names])
        assert called == ["static", "Hiding", "inherited", "partial 5"]

    def test_special_methods_are_inherited(self) -> None:
        actor = ray.remote(Hiding).remote()
        assert ray.get(actor.__call__.remote(1)) == 2
        with pytest.raises(TypeError, match="missing a required argument"):
            actor.__call__.remote()

    def test_what_is_hidden_later(self) -> None:
        actor = ray.remote(Hiding).remote()
        ray.get([actor.replace.remote(), actor.replace.remote()])
        with pytest.raises(ValueError, match="the method of the class"):
            ray.get(actor.fails.remote())

    def test_methods_of_async_and_threaded_actors(self) -> None:
        class Async(Hidden):
            def __init__(self) -> None:
                super().__init__()
                self.__dict__["wait"] = "an attribute"

            async def wait(self) -> str:
                return "method"

        threaded = ray.remote(Hiding).options(max_concurrency=2).remote()
        assert ray.get(threaded.items.remote()) == ("items", "an attribute")
        actor = ray.remote(Async).remote()
        assert ray.get([actor.wait.remote(), actor.inherited.remote()]) == ["method", "inherited"]

    def test_the_names_that_every_actor_has(self) -> None:
        class Named:
            def __ray_ready__(self) -> str:
                return "mine"

            def __ray_call__(self, function: typing.Any) -> str:
                return "mine"

        actor = ray.remote(Named).remote()
        assert ray.get(actor.__ray_ready__.remote()) is True
        assert ray.get(actor.__ray_call__.remote(lambda self: "theirs")) == "theirs"

    def test_handles_hide_no_method(self) -> None:
        class Private:
            def _actor(self) -> str:
                return "actor"

            def _shape(self) -> str:
                return "shape"

            def _ref(self) -> str:
                return "ref"

        actor = ray.remote(Private).remote()
        calls = [actor._actor.remote(), actor._shape.remote(), actor._ref.remote()]
        assert ray.get(calls) == ["actor", "shape", "ref"]

    def test_callable_attributes_of_the_class_are_no_methods(self) -> None:
        class Callable:
            def __call__(self) -> int:
                return 1

        class Owner:
            tool = Callable()
            half = functools.partial(int, base=2)

            def use(self) -> int:
                return self.tool() + self.half("10")

        actor = ray.remote(Owner).remote()
        assert ray.get(actor.use.remote()) == 3
        with pytest.raises(AttributeError, match="tool"):
            _ = actor.tool
