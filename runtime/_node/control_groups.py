"""The control groups (version 2) of a node: one for its daemons, one for its workers.

    PATH/clusterctl-node_PID_RANDOM/system     the agent, with what it starts but workers
    PATH/clusterctl-node_PID_RANDOM/workers    the workers and the zygotes that preload modules, which enter it
                                               themselves before they do anything else

Only processes of the node are moved. A node that was killed leaves empty groups, which the next one below the same path
removes. Controllers that were switched on for the groups below the path stay so.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from runtime._core.isolation import Isolation
from runtime._system import files

PREFIX = "clusterctl-node_"
_EMPTY_WITHIN_S = 2.0
_LOOK_S = 0.02
_LEAVES = ("system", "workers")


class _Mount(NamedTuple):
    """A mounted hierarchy. `root`: which group is seen at its top."""

    place: str
    root: str
    is_writable: bool


class NodeGroups:
    """The groups of this process's node. `workers`: the folder of the workers' group."""

    def __init__(self, folder: str, origin: str) -> None:
        self._folder = folder
        self._origin = origin
        self._system, self.workers = (os.path.join(folder, name) for name in _LEAVES)

    @classmethod
    def begin(cls, isolation: Isolation) -> NodeGroups:
        """Makes the groups, and moves this process into that of the daemons. What it starts is there as well.

        Raises:
            ValueError: there cannot be such groups below the path. The text says why and what to do.
        """
        path = os.path.realpath(isolation.path)
        mount = _check(path, isolation.path)
        remove_abandoned(path)
        _enable(path, isolation.controllers)
        groups = cls(os.path.join(path, f"{PREFIX}{os.getpid()}_{os.urandom(4).hex()}"), _own_group(mount))
        try:
            groups._make(isolation)
        except OSError as error:
            groups.end()
            raise ValueError(
                f"No control groups for this node below {isolation.path}: {error}. Its processes are moved from "
                f"{groups._origin or 'a group that is not visible here'}: this user must be allowed to write "
                "cgroup.procs there, in the path, and in the nearest group that holds both."
            ) from error
        return groups

    def _make(self, isolation: Isolation) -> None:
        os.mkdir(self._folder)
        _write_all(self._folder, isolation.node)
        for controller in isolation.controllers:
            _write(self._folder, "cgroup.subtree_control", f"+{controller}")
        for leaf, values in ((self._system, isolation.system), (self.workers, isolation.workers)):
            os.mkdir(leaf)
            _write_all(leaf, values)
        _write(self._system, "cgroup.procs", "0")

    def end(self) -> None:
        """This process goes back to where it came from, with what is left of the node's, and the groups go. What cannot
        be removed is left to the next node."""
        if not self._origin:
            return
        for leaf in (self.workers, self._system):
            _move_all(leaf, self._origin)
        deadline = time.monotonic() + _EMPTY_WITHIN_S
        while not _remove(self._folder) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)  # processes that were killed a moment ago


def remove_abandoned(path: str) -> None:
    """Removes the groups of nodes that were killed."""
    for name in os.listdir(path):
        if name.startswith(PREFIX):
            pid = name.removeprefix(PREFIX).partition("_")[0]
            if not os.path.exists(f"/proc/{pid}"):
                _remove(os.path.join(path, name))


def _check(path: str, given: str) -> _Mount:
    """The hierarchy of a path, if there can be groups below it."""
    if not os.path.isdir(path):
        raise ValueError(
            f"cgroup_path={given!r} does not exist. Make the group with mkdir, or name another one."
        )
    mount = max((m for m in _mounts() if _is_within(path, m.place)), key=lambda m: len(m.place), default=None)
    if mount is None:
        raise ValueError(
            f"cgroup_path={given!r} is in no control group hierarchy of version 2 (a mount of type cgroup2), which "
            "resource isolation needs. Boot the machine with systemd.unified_cgroup_hierarchy=1, or name a group of a "
            "cgroup2 mount."
        )
    files_written = [os.path.join(path, name) for name in ("", "cgroup.procs", "cgroup.subtree_control")]
    if not mount.is_writable or not all(os.access(file, os.W_OK) for file in files_written):
        why = (
            "is mounted read-only" if not mount.is_writable else f"may not be written by user {os.geteuid()}"
        )
        raise ValueError(
            f"cgroup_path={given!r} {why}, and resource isolation makes groups in it. In a container, mount it "
            "read-write; elsewhere, run as root or name a group that was delegated to this user."
        )
    return mount


def _enable(path: str, controllers: tuple[str, ...]) -> None:
    """Switches controllers on for the groups below a path."""
    here = files.read(os.path.join(path, "cgroup.controllers")).split()
    missing = [name for name in controllers if name not in here]
    if missing:
        raise ValueError(
            f"The control group {path} lacks the controllers {', '.join(missing)}; it has: "
            f"{', '.join(here) or 'none'}. Switch them on in cgroup.subtree_control of the group above. A hierarchy of "
            "version 1 that uses a controller must be unmounted first."
        )
    enabled = files.read(os.path.join(path, "cgroup.subtree_control")).split()
    for name in controllers:
        if name in enabled:
            continue
        try:
            _write(path, "cgroup.subtree_control", f"+{name}")
        except OSError as error:
            text = f"The controller {name} cannot be switched on below the control group {path}: {error}."
            if error.errno == errno.EBUSY:
                text += (
                    " It has processes of its own, and then the kernel allows no controllers below it. Move them into "
                    "a group below it, or name a group without processes."
                )
            raise ValueError(text) from error


def _mounts() -> Iterator[_Mount]:
    for line in files.read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if kind[0] == "cgroup2":
            place = fields[4].encode().decode("unicode_escape")
            options = {*fields[5].split(","), *kind[2].split(",")}
            yield _Mount(place, fields[3], "ro" not in options)


def _own_group(mount: _Mount) -> str:
    """The folder of the group that this process is in, or ""."""
    for line in files.read("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            name = line.removeprefix("0::")
            if _is_within(name, mount.root):
                folder = os.path.join(mount.place, os.path.relpath(name, mount.root))
                return os.path.normpath(folder) if os.path.isdir(folder) else ""
    return ""


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _write(folder: str, name: str, text: str) -> None:
    descriptor = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _write_all(folder: str, values: Mapping[str, str]) -> None:
    for name, text in values.items():
        _write(folder, name, text)


def _move_all(folder: str, target: str) -> None:
    try:
        pids = files.read(os.path.join(folder, "cgroup.procs")).split()
    except OSError:
        return
    for pid in pids:
        try:
            _write(target, "cgroup.procs", pid)
        except OSError:
            continue  # it has ended, or the group takes none


def _remove(folder: str) -> bool:
    """Whether the groups are gone. Those with processes stay."""
    for group in (*(os.path.join(folder, leaf) for leaf in _LEAVES), folder):
        try:
            os.rmdir(group)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True
