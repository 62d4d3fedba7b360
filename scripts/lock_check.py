#!/usr/bin/env python3
"""Fails when code that runs under the engine's lock calls user code, unpickles, prints, sleeps or uses sockets.

The pump of a driver or worker has one lock. Whoever holds it stops every `remote()`, `get()` and reply of the process,
so nothing under it may wait, and nothing may run code that could take the lock of an import. This check follows the
calls statically, by the annotations, from everything that runs under the lock:

- the handlers of messages: every function that is a value of a table (`{Push: self._on_push}`);
- functions that are set as `on_...`: of pumps and connections, for closed connections, timers and room;
- callbacks that are passed to the functions in `REGISTERS`, and to constructors;
- functions whose docstring says "Under the lock";
- the bodies of `with ....lock:`.

A callback that is passed on under the lock counts as called under it, unless `ELSEWHERE` says that it runs on another
thread. `EXCEPTIONS` are the calls that are allowed, each with its reason. Values without a known type are not followed:
the annotations decide what the check sees. Logging is allowed: the engine logs its own failures, and at a limited rate.

    scripts/lock_check.py [--root FOLDER] [--packages NAME ...] [--why FUNCTION]
"""

from __future__ import annotations

import argparse
import ast
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = (
    "runtime._extension",
    "runtime._owner",
    "runtime._ownership",
    "runtime._executor",
    "runtime._process",
    "runtime._transport",
    "runtime._api.init",
    "runtime._system.stacks",
    "runtime.object_ref",
    "runtime.object_ref_generator",
)
DAEMONS_ONLY = frozenset(
    f"runtime._transport.{name}" for name in ("bulk", "channel", "handshaking", "loopback", "tcp", "unix")
)
"""Modules that drivers and workers do not load."""

FORBIDDEN = {
    "print": "prints",
    "input": "reads the terminal",
    "sys.stdout.write": "prints",
    "sys.stdout.flush": "prints",
    "sys.stderr.write": "prints",
    "sys.stderr.flush": "prints",
    "pickle.loads": "unpickles",
    "pickle.load": "unpickles",
    "pickle.Unpickler": "unpickles",
    "cloudpickle.loads": "unpickles",
    "cloudpickle.load": "unpickles",
    "runtime._wire.serialization.deserialize": "unpickles",
    "runtime._wire.serialization.serialize": "pickles a value of the user",
    "runtime._owner.unpickling.rebuild": "unpickles",
    "runtime._owner.unpickling.rebuild_all": "unpickles",
    "importlib.import_module": "imports",
    "__import__": "imports",
    "time.sleep": "sleeps",
    "subprocess.run": "waits for a process",
    "subprocess.Popen": "starts a process",
    "socket.socket": "uses a socket",
    "socket.create_connection": "uses a socket",
    "socket.create_server": "uses a socket",
    "socket.getaddrinfo": "asks the network",
}
"""What must not be called, by its full name, and what it does."""

FORBIDDEN_METHODS = {
    "set_result": "runs the callbacks of a future",
    "set_exception": "runs the callbacks of a future",
    "add_done_callback": "may run a callback of the user",
    "sendall": "uses a socket",
    "recv": "uses a socket",
    "recv_into": "uses a socket",
    "connect": "uses a socket",
    "accept": "uses a socket",
    "send": "uses a socket",
}
"""The same for methods of values that are not of these packages."""

REGISTERS = frozenset(
    [
        "call",
        "call_or_gather",
        "when_ready",
        "when_registered",
        "when_all_registered",
        "watch",
        "listen_unix",
        "listen_tcp",
        "when_all_ready",
        "call_when_ready",
        "prefetch",
        "serve",
        "start",
    ]
)
"""Functions whose callbacks run under the lock, whoever registers them."""

ELSEWHERE = frozenset(
    [
        "_connect_later",
        "Zygote",
        "Thread",
        "Timer",
        "CallThreads",
        "load_in_thread",
        "run_in_executor",
        "call_soon_threadsafe",
        "finalize",
        "LogPrinter",
        "post",
        "Printing",
    ]
)
"""What is passed to these runs later, or on a thread of its own, without the lock."""

OTHER_LOCKS = frozenset(["runtime._process.progress.BarManager"])
"""Classes whose `self.lock` is not the engine's."""

_CONNECTION = "runtime._transport.connection.Connection"
EXCEPTIONS: dict[tuple[str, str], str] = {
    (f"{_CONNECTION}.flush", "send"): "this is the buffer of a connection; its socket never blocks",
    (f"{_CONNECTION}._read", "recv"): "the same",
    (f"{_CONNECTION}._read_large", "recv_into"): "the same",
    ("runtime._transport.pump.Pump.connect_unix", "socket.socket"): "made not to block before it is used",
    (
        "runtime._transport.pump.Pump.connect_unix",
        "connect",
    ): "does not block: a full backlog is waited for on a thread",
    ("runtime._transport.listener.Listener._on_events", "accept"): "does not block",
    (
        "runtime._transport.greeting._Peer.proceed",
        "recv",
    ): "does not block; a handshake has no buffer of a connection yet",
    ("runtime._transport.greeting._Peer._say", "send"): "the same",
    ("runtime._owner.objects.Objects.error_value", "runtime._wire.serialization.serialize"): (
        "under the lock these are errors that the engine makes itself"
    ),
    (
        "runtime._owner.effects.Effects.collected",
        "runtime._wire.serialization.serialize",
    ): "a list of references",
}
"""(function, what it calls) -> why that is right."""


# ---------------------------------------------------------------- the program


@dataclass(eq=False)
class Function:
    """A function, method or lambda. `outer`: the function that it is in, whose names it sees."""

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: Module
    cls: Class | None = None
    outer: Function | None = None
    inner: dict[str, Function] = field(default_factory=dict)

    @property
    def body(self) -> list[ast.AST]:
        return [self.node.body] if isinstance(self.node, ast.Lambda) else list(self.node.body)

    @property
    def returns(self) -> ast.expr | None:
        return None if isinstance(self.node, ast.Lambda) else self.node.returns

    @property
    def is_property(self) -> bool:
        return not isinstance(self.node, ast.Lambda) and any(
            isinstance(one, ast.Name) and one.id in ("property", "cached_property")
            for one in self.node.decorator_list
        )


@dataclass(eq=False)
class Class:
    """A class with its methods, and the expressions that its attributes were given."""

    name: str
    module: Module
    node: ast.ClassDef
    methods: dict[str, Function] = field(default_factory=dict)
    annotations: dict[str, ast.expr] = field(default_factory=dict)
    assigned: dict[str, list[tuple[Function, ast.expr]]] = field(default_factory=dict)

    @cached_property
    def bases(self) -> list[str]:
        return [self.module.full_name(base) for base in self.node.bases]

    @property
    def is_protocol(self) -> bool:
        return any(base in ("typing.Protocol", "Protocol") for base in self.bases)


class Module:
    """A module: what its names mean."""

    def __init__(self, name: str, is_package: bool, source: str) -> None:
        self.name = name
        self.tree = ast.parse(source)
        self.imported: dict[str, str] = {}
        self.functions: dict[str, Function] = {}
        self.classes: dict[str, Class] = {}
        self.aliases: dict[str, ast.expr] = {}
        package = name if is_package else name.rpartition(".")[0]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.imported[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    above = package.split(".")
                    above = above[: len(above) - node.level + 1]
                    base = ".".join([*above, base] if base else above)
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = f"{base}.{alias.name}"
        for node in self.tree.body:
            self._define(node)

    def _define(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.functions[node.name] = self._function(f"{self.name}.{node.name}", node, None, None)
        elif isinstance(node, ast.ClassDef):
            self._define_class(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            self.aliases[node.targets[0].id] = node.value

    def _define_class(self, node: ast.ClassDef) -> None:
        cls = self.classes[node.name] = Class(f"{self.name}.{node.name}", self, node)
        for item in node.body:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                cls.methods[item.name] = self._function(f"{cls.name}.{item.name}", item, cls, None)
            elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                cls.annotations[item.target.id] = item.annotation
        for method in cls.methods.values():
            for inner in ast.walk(method.node):
                if isinstance(inner, ast.AnnAssign) and _own_attribute(inner.target):
                    cls.annotations[inner.target.attr] = inner.annotation  # type: ignore[union-attr]
                elif isinstance(inner, ast.Assign):
                    for target, value in _pairs(inner):
                        if _own_attribute(target):
                            cls.assigned.setdefault(target.attr, []).append((method, value))  # type: ignore[attr-defined]

    def _function(
        self,
        name: str,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        cls: Class | None,
        outer: Function | None,
    ) -> Function:
        function = Function(name, node, self, cls, outer)
        for inner in _nested(node):
            inner_name = f"<lambda {inner.lineno}>" if isinstance(inner, ast.Lambda) else inner.name
            key = (
                f"<lambda {inner.lineno}:{inner.col_offset}>" if isinstance(inner, ast.Lambda) else inner.name
            )
            function.inner[key] = self._function(f"{name}.{inner_name}", inner, cls, function)
        return function

    def full_name(self, node: ast.expr) -> str:
        """The dotted name that an expression stands for; "" for any other expression."""
        if isinstance(node, ast.Subscript):
            return self.full_name(node.value)
        if isinstance(node, ast.Attribute):
            base = self.full_name(node.value)
            return f"{base}.{node.attr}" if base else ""
        if not isinstance(node, ast.Name):
            return ""
        if node.id in self.imported:
            return self.imported[node.id]
        if node.id in self.classes or node.id in self.functions:
            return f"{self.name}.{node.id}"
        return node.id


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with its value; `a, b = c, d` has two."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _own_attribute(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _nested(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda]:
    """The functions directly inside another one."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
        elif not isinstance(child, ast.ClassDef):
            yield from _nested(child)


# ---------------------------------------------------------------- types


@dataclass(frozen=True)
class Type:
    """An instance of a class (`name`), or a container of `items`: its values, for a mapping."""

    name: str
    items: tuple[Type, ...] = ()


class Program:
    """All modules of some packages; a package may be a module."""

    def __init__(self, root: pathlib.Path, packages: Iterable[str]) -> None:
        self.modules: dict[str, Module] = {}
        for package in packages:
            place = root.joinpath(*package.split("."))
            alone = place.with_suffix(".py")
            for path in [alone] if alone.exists() else sorted(place.rglob("*.py")):
                parts = path.relative_to(root).with_suffix("").parts
                is_package = parts[-1] == "__init__"
                name = ".".join(parts[:-1] if is_package else parts)
                if name in DAEMONS_ONLY:
                    continue
                self.modules[name] = Module(name, is_package, path.read_text(encoding="utf-8"))
        self.classes = {cls.name: cls for module in self.modules.values() for cls in module.classes.values()}
        self._busy: set[tuple[str, str]] = set()
        self._locals: dict[Function, dict[str, set[Type]]] = {}
        self._implementations: dict[str, list[Class]] = {}

    def functions(self) -> Iterator[Function]:
        """All functions, nested ones included."""
        todo = [one for module in self.modules.values() for one in module.functions.values()]
        todo += [one for cls in self.classes.values() for one in cls.methods.values()]
        while todo:
            function = todo.pop()
            yield function
            todo += function.inner.values()

    # ------------------------------------------------------------ annotations

    def annotated(self, module: Module, node: ast.expr | None, cls: Class | None = None) -> set[Type]:
        """The types that an annotation names."""
        if node is None:
            return set()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.annotated(module, ast.parse(node.value, mode="eval").body, cls)
        if isinstance(node, ast.BinOp):
            return self.annotated(module, node.left, cls) | self.annotated(module, node.right, cls)
        if isinstance(node, ast.Subscript):
            name = module.full_name(node.value)
            if name in self.classes:
                return {Type(name)}
            if name.endswith(("Callable", "Literal", "ClassVar", "type")):
                return set()
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            if name.rpartition(".")[2] in (
                "dict",
                "Mapping",
                "MutableMapping",
                "WeakValueDictionary",
                "defaultdict",
            ):
                inner = inner[-1:]
            items = tuple(
                sorted(
                    {one for each in inner for one in self.annotated(module, each, cls)},
                    key=lambda one: one.name,
                )
            )
            return {Type("container", items)} if items else set()
        if isinstance(node, ast.Name) and node.id == "Self" and cls is not None:
            return {Type(cls.name)}
        name = module.full_name(node)
        if name in self.classes:
            return {Type(name)}
        owner, _, last = name.rpartition(".")
        if not owner and name in module.aliases:
            return self.annotated(module, module.aliases[name], cls)
        if owner in self.modules and last in self.modules[owner].aliases:
            other = self.modules[owner]
            return self.annotated(other, other.aliases[last], cls)
        return set()

    # ------------------------------------------------------------ attributes

    def family(self, name: str) -> Iterator[Class]:
        """A class and its bases."""
        cls = self.classes.get(name)
        if cls is not None:
            yield cls
            for base in cls.bases:
                yield from self.family(base)

    def implementations(self, name: str) -> list[Class]:
        """What a value of that type may be: the class, its subclasses; of a protocol, what has all its methods."""
        if name not in self._implementations:
            cls = self.classes.get(name)
            if cls is None:
                found = []
            elif cls.is_protocol:
                wanted = {each for one in self.family(name) for each in one.methods}
                found = [
                    other
                    for other in self.classes.values()
                    if not other.is_protocol
                    and wanted
                    <= {
                        each
                        for one in self.family(other.name)
                        for each in (*one.methods, *one.annotations, *one.assigned)
                    }
                ]
            else:
                found = [other for other in self.classes.values() if cls in self.family(other.name)]
            self._implementations[name] = found
        return self._implementations[name]

    def attribute(self, name: str, attr: str) -> set[Type]:
        """The types of an attribute of an instance of a class."""
        if (name, attr) in self._busy:
            return set()
        self._busy.add((name, attr))
        try:
            found: set[Type] = set()
            for start in self.implementations(name) or list(self.family(name)):
                for cls in self.family(start.name):
                    if attr in cls.annotations:
                        found |= self.annotated(cls.module, cls.annotations[attr], cls)
                    elif attr in cls.methods and cls.methods[attr].is_property:
                        found |= self.annotated(cls.module, cls.methods[attr].returns, cls)
                    for function, value in cls.assigned.get(attr, ()):
                        found |= self.type_of(function, value)
            return found
        finally:
            self._busy.discard((name, attr))

    def methods(self, name: str, attr: str) -> set[Function]:
        """The functions that `instance.attr` may be, also where a function was assigned to it."""
        if (name, f"{attr}()") in self._busy:
            return set()
        self._busy.add((name, f"{attr}()"))
        try:
            found: set[Function] = set()
            for start in self.implementations(name):
                for cls in self.family(start.name):
                    if attr in cls.methods:
                        found.add(cls.methods[attr])
                        break
                    values = cls.assigned.get(attr, ())
                    if values:
                        for function, value in values:
                            found |= self.references(function, value)
                        break
            return found
        finally:
            self._busy.discard((name, f"{attr}()"))

    # ------------------------------------------------------------ expressions

    def local_types(self, function: Function) -> dict[str, set[Type]]:
        """The types of the parameters and local variables of a function, wherever in it they were assigned."""
        if function in self._locals:
            return self._locals[function]
        found = self._locals[function] = {}
        arguments = function.node.args
        for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            found[one.arg] = self.annotated(function.module, one.annotation, function.cls)
        if (
            function.cls is not None
            and function.outer is None
            and arguments.args
            and arguments.args[0].arg == "self"
        ):
            found["self"] = {Type(function.cls.name)}
        for _ in range(2):  # a variable may be used above the assignment that tells its type
            for node in _own_nodes(function.body):
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    types = self.annotated(function.module, node.annotation, function.cls)
                    found.setdefault(node.target.id, set()).update(types)
                elif isinstance(node, ast.Assign):
                    for target in node.targets:
                        self._assign(function, found, target, node.value)
                elif isinstance(node, ast.NamedExpr):
                    self._assign(function, found, node.target, node.value)
                elif isinstance(node, ast.For | ast.comprehension):
                    items = {item for one in self.type_of(function, node.iter) for item in one.items}
                    for name in ast.walk(node.target):
                        if isinstance(name, ast.Name):
                            found.setdefault(name.id, set()).update(items)
        return found

    def _assign(
        self, function: Function, found: dict[str, set[Type]], target: ast.expr, value: ast.expr
    ) -> None:
        if isinstance(target, ast.Name):
            found.setdefault(target.id, set()).update(self.type_of(function, value))
        elif (
            isinstance(target, ast.Tuple)
            and isinstance(value, ast.Tuple)
            and len(target.elts) == len(value.elts)
        ):
            for one, each in zip(target.elts, value.elts, strict=True):
                self._assign(function, found, one, each)
        elif isinstance(target, ast.Tuple):
            items = {item for one in self.type_of(function, value) for item in (one.items or ())}
            for one in target.elts:
                if isinstance(one, ast.Name):
                    found.setdefault(one.id, set()).update(items)

    def type_of(self, function: Function, node: ast.expr) -> set[Type]:
        """The types that an expression in a function may have; empty when they are of no interest or unknown."""
        if isinstance(node, ast.Name):
            here: Function | None = function
            while here is not None:
                if node.id in self.local_types(here):
                    return self.local_types(here)[node.id]
                here = here.outer
            return self._global(function.module, node.id)
        if isinstance(node, ast.Attribute):
            return {
                found
                for one in self.type_of(function, node.value)
                for found in self.attribute(one.name, node.attr)
            }
        if isinstance(node, ast.Call):
            return self._result_of(function, node)
        if isinstance(node, ast.Subscript):
            return {item for one in self.type_of(function, node.value) for item in one.items}
        if isinstance(node, ast.IfExp):
            return self.type_of(function, node.body) | self.type_of(function, node.orelse)
        if isinstance(node, ast.BoolOp):
            return {found for value in node.values for found in self.type_of(function, value)}
        if isinstance(node, ast.NamedExpr | ast.Await | ast.Starred):
            return self.type_of(function, node.value)
        return set()

    def _global(self, module: Module, name: str) -> set[Type]:
        """The type of a module's variable, imported ones included."""
        owner, _, last = module.imported.get(name, "").rpartition(".")
        if owner in self.modules:
            module, name = self.modules[owner], last
        value = module.aliases.get(name)
        found = module.full_name(value.func) if isinstance(value, ast.Call) else ""
        return {Type(found)} if found in self.classes else set()

    def _result_of(self, function: Function, node: ast.Call) -> set[Type]:
        name = function.module.full_name(node.func)
        if name in self.classes:
            return {Type(name)}
        found = {
            each
            for callee in self.references(function, node.func)
            for each in self.annotated(callee.module, callee.returns, callee.cls)
        }
        if not found and isinstance(node.func, ast.Attribute):
            receivers = self.type_of(function, node.func.value)
            if node.func.attr in ("get", "pop", "popleft", "setdefault"):
                found = {item for one in receivers for item in one.items}
            elif node.func.attr in ("values", "copy"):
                found = receivers
        if not found and name in ("list", "tuple", "sorted", "set", "reversed", "iter", "next") and node.args:
            found = self.type_of(function, node.args[0])
        return found

    def references(self, function: Function, node: ast.expr) -> set[Function]:
        """The functions that an expression may stand for, without calling it."""
        if isinstance(node, ast.Lambda):
            key = f"<lambda {node.lineno}:{node.col_offset}>"
            return {function.inner[key]} if key in function.inner else set()
        if isinstance(node, ast.Name):
            here: Function | None = function
            while here is not None:
                if node.id in here.inner:
                    return {here.inner[node.id]}
                here = here.outer
        if (
            isinstance(node, ast.Call)
            and function.module.full_name(node.func).endswith("partial")
            and node.args
        ):
            return self.references(function, node.args[0])
        if isinstance(node, ast.IfExp):
            return self.references(function, node.body) | self.references(function, node.orelse)
        if isinstance(node, ast.Attribute):
            found = {
                each
                for one in self.type_of(function, node.value)
                for each in self.methods(one.name, node.attr)
            }
            if found:
                return {one for one in found if not one.is_property}
        name = function.module.full_name(node)
        owner, _, last = name.rpartition(".")
        if name in self.classes:
            cls = self.classes[name]
            return {one for each in self.family(cls.name) if (one := each.methods.get("__init__"))}
        if owner in self.modules and last in self.modules[owner].functions:
            return {self.modules[owner].functions[last]}
        if owner in self.classes:
            return self.methods(owner, last)
        return set()


def _own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a body, without those of functions inside it."""
    todo = list(body)[::-1]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            todo += list(ast.iter_child_nodes(node))[::-1]


# ---------------------------------------------------------------- the check


@dataclass(frozen=True)
class Finding:
    """A forbidden call, and the chain of functions that leads to it from where the lock is held."""

    function: str
    line: int
    callee: str
    what: str
    chain: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.function}:{self.line} {self.what} ({self.callee}) under the lock: {' -> '.join(self.chain)}"


class Check:
    """Follows what runs under the lock."""

    def __init__(self, program: Program, exceptions: Iterable[tuple[str, str]] = ()) -> None:
        self._program = program
        self._exceptions = set(exceptions)
        self.used: set[tuple[str, str]] = set()
        self.findings: list[Finding] = []
        self.chains: dict[Function, tuple[str, ...]] = {}

    def run(self) -> list[Finding]:
        """All forbidden calls under the lock."""
        todo: list[Function] = []
        for function in list(self._program.functions()):
            for entry, why in self._entries(function):
                if entry not in self.chains:
                    self.chains[entry] = (why, entry.name)
                    todo.append(entry)
            for node in _own_nodes(function.body):
                if isinstance(node, ast.With) and any(
                    _is_lock(item.context_expr, function) for item in node.items
                ):
                    self._follow(function, node.body, (f"the lock is taken in {function.name}",), todo)
        while todo:
            function = todo.pop()
            if not isinstance(function.node, ast.AsyncFunctionDef):
                self._follow(function, function.body, self.chains[function], todo)
        return self.findings

    def _entries(self, function: Function) -> Iterator[tuple[Function, str]]:
        """What is registered in a function to run under the lock, and the function itself if it says so."""
        program = self._program
        documentation = None if isinstance(function.node, ast.Lambda) else ast.get_docstring(function.node)
        if documentation and re.search(r"\b[Uu]nder the (pump's |engine's )?lock\b", documentation):
            yield function, "runs under the lock"
        for node in _own_nodes(function.body):
            if isinstance(node, ast.Dict):
                for value in node.values:
                    for one in program.references(function, value):
                        if not _is_constructor(one) and not isinstance(value, ast.Call):
                            yield one, "is in a table"
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and target.attr.startswith("on_"):
                        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                        for value in values:
                            for one in program.references(function, value):
                                yield one, f"is set as {target.attr}"
            elif isinstance(node, ast.Call):
                name = _called(node)
                is_made = function.module.full_name(node.func) in program.classes
                if _runs_elsewhere(node) or not (name in REGISTERS or is_made):
                    continue
                for value in (*node.args, *(keyword.value for keyword in node.keywords)):
                    for one in program.references(function, value):
                        if one.node is not function.node and not _is_constructor(one):
                            yield one, f"is a callback of {name}"

    def _follow(
        self, function: Function, body: Iterable[ast.AST], chain: tuple[str, ...], todo: list[Function]
    ) -> None:
        program = self._program
        for node in _own_nodes(body):
            if isinstance(node, ast.Attribute):
                for one in program.type_of(function, node.value):
                    for cls in program.implementations(one.name):
                        method = cls.methods.get(node.attr)
                        if method is not None and method.is_property:
                            self._reach(method, chain, todo)
            if not isinstance(node, ast.Call):
                continue
            callees = program.references(function, node.func)
            self._judge(function, node, bool(callees), chain)
            for callee in callees:
                self._reach(callee, chain, todo)
            if _runs_elsewhere(node):
                continue
            for value in (*node.args, *(keyword.value for keyword in node.keywords)):
                for one in program.references(function, value):
                    if not _is_constructor(one):
                        self._reach(one, chain, todo)

    def _reach(self, function: Function, chain: tuple[str, ...], todo: list[Function]) -> None:
        if function not in self.chains and not self._excepted(chain[-1], function.name):
            self.chains[function] = (*chain, function.name)
            todo.append(function)

    def _judge(self, function: Function, node: ast.Call, is_ours: bool, chain: tuple[str, ...]) -> None:
        name = function.module.full_name(node.func)
        what = FORBIDDEN.get(name)
        if what is None and not is_ours and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            what = FORBIDDEN_METHODS.get(name)
            if name == "send" and "sock" not in ast.unparse(node.func.value):
                what = None  # of a connection: it fills the buffer
        if what is not None and not self._excepted(function.name, name):
            self.findings.append(Finding(function.name, node.lineno, name, what, chain))

    def _excepted(self, function: str, callee: str) -> bool:
        if (function, callee) in self._exceptions:
            self.used.add((function, callee))
            return True
        return False


def _is_lock(node: ast.expr, function: Function) -> bool:
    """Whether this is the engine's lock; parts have locks of their own, which are private or in `OTHER_LOCKS`."""
    is_own = (
        function.cls is not None and function.cls.name in OTHER_LOCKS and ast.unparse(node) == "self.lock"
    )
    return isinstance(node, ast.Attribute) and node.attr == "lock" and not is_own


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _runs_elsewhere(node: ast.Call) -> bool:
    """Whether what is passed here runs without the lock: also `partial(call_soon_threadsafe, what, ...)`."""
    first = node.args[0] if _called(node) == "partial" and node.args else None
    return _called(node) in ELSEWHERE or (isinstance(first, ast.Attribute) and first.attr in ELSEWHERE)


def _is_constructor(function: Function) -> bool:
    return function.name.endswith(".__init__")


def main() -> int:
    """Prints the forbidden calls; the exit status says whether there are any."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the folder that holds the packages")
    parser.add_argument("--packages", nargs="+", default=PACKAGES)
    parser.add_argument("--why", help="how functions whose name contains this come to run under the lock")
    options = parser.parse_args()
    check = Check(Program(options.root, options.packages), EXCEPTIONS)
    findings = check.run()
    if options.why:
        for function, chain in check.chains.items():
            if options.why in function.name:
                print(" -> ".join(chain))
        return 0
    for finding in findings:
        print(finding)
    stale = EXCEPTIONS.keys() - check.used if options.root == ROOT else ()
    for function, callee in sorted(stale):
        print(f"EXCEPTIONS: {function} does not call {callee} under the lock any more: remove it")
    if not findings and not stale:
        print(f"{len(check.chains)} functions run under the lock; none calls what it must not")
    return 1 if findings or stale else 0


if __name__ == "__main__":
    sys.exit(main())
