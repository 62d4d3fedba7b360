"""The operator's own SSH configuration (~/.ssh/config), which says how a machine of a given name is entered.

paramiko reads it. `Include` is resolved here, because paramiko does not know it. The system's configuration is not
read.
"""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from clusterctl.errors import UsageProblem

from .target import SshTarget

if TYPE_CHECKING:
    import paramiko

DEFAULT = "~/.ssh/config"
NONE = "none"
"""Instead of a file's name: no configuration is read."""

_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_GLOBAL_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_EVERY_HOST = "Host *"
_CRITERIA = frozenset("all canonical exec final host localuser originalhost user".split())
"""Of `Match`, as far as paramiko knows them."""
_WITHOUT_VALUE = frozenset(("all", "canonical", "final"))
_MOST_JUMPS = 8
_MOST_INCLUDES = 16
_HINT = "Correct it, or set auth.ssh_config in the cluster's YAML to another file, or to `none`."


class SshConfig:
    """What a configuration says about machines.

    Args:
        text: of the configuration; "" says nothing.
        file: where it is from, for messages.

    Raises:
        UsageProblem: it cannot be understood.
    """

    def __init__(self, text: str, file: str = DEFAULT) -> None:
        self._file = file
        self._parsed: paramiko.SSHConfig | None = None
        if text.strip():
            import paramiko

            class Config(paramiko.SSHConfig):  # type: ignore[misc]  # paramiko has no types
                # %h, %p and %r of a ProxyCommand stay: the target knows what goes before the configuration's port and
                # user.
                TOKENS_BY_CONFIG_KEY = {**paramiko.SSHConfig.TOKENS_BY_CONFIG_KEY, "proxycommand": ["~"]}

            try:
                self._parsed = Config.from_text(text)
            except (paramiko.SSHException, ValueError) as error:
                raise self._wrong(error) from error

    @classmethod
    def read(cls, file: str) -> SshConfig:
        """The configuration of a file; of one that is missing, or `NONE`, an empty one."""
        path = os.path.expanduser(file or DEFAULT)
        if file == NONE or not os.path.exists(path):
            return cls("")
        try:
            return cls("\n".join(_lines(path, 0)), path)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageProblem(f"the SSH configuration {path} cannot be read: {error}", _HINT) from error

    def target(self, user: str, host: str, port: int, base: SshTarget) -> SshTarget:
        """How to enter a machine. What `base` and the arguments say goes before the configuration.

        Args:
            user: "": not said.
            host: a name of the configuration, or of the machine, or its address.
            port: 0: not said.
        """
        return self._target(user, host, port, base, 0)

    def jump(self, user: str, host: str, port: int, base: SshTarget, depth: int = 0) -> SshTarget:
        """The same of a machine that leads to others, for which the configuration's user goes before that of `base`."""
        configured = str(self._lookup(host).get("user", ""))
        return self._target(user or configured, host, port, base, depth)

    def _target(self, user: str, host: str, port: int, base: SshTarget, depth: int) -> SshTarget:
        found = self._lookup(host)
        real = str(found.get("hostname", host))
        try:
            real_port = port or int(str(found.get("port", base.port)))
        except ValueError as error:
            raise self._wrong(f"Port of {host} is no number") from error
        target = replace(
            base,
            name=_written(host, port) if (real, real_port) != (host, port or base.port) else "",
            host=real,
            port=real_port,
            user=user or base.user or str(found.get("user", "")),
            host_key_alias=str(found.get("hostkeyalias", "")),
            users_known_hosts=(
                *_files(found.get("userknownhostsfile", _KNOWN_HOSTS)),
                *_files(found.get("globalknownhostsfile", _GLOBAL_KNOWN_HOSTS)),
            ),
            is_strict=str(found.get("stricthostkeychecking", "")).lower() in ("yes", "true"),
        )
        if not base.key_file:
            identities = found.get("identityfile", ())
            assert isinstance(identities, list | tuple)
            target = replace(
                target,
                identities=tuple(
                    path for name in identities if os.path.exists(path := os.path.expanduser(name))
                ),
                identities_only=str(found.get("identitiesonly", "")).lower() in ("yes", "true"),
                certificate=os.path.expanduser(str(found.get("certificatefile", ""))),
            )
        if base.jump is not None or base.proxy_command:
            return target
        way = str(found.get("proxyjump", NONE))
        if way.lower() != NONE:
            return replace(target, jump=self._jumps(way, base, depth + 1))
        return replace(target, proxy_command=str(found.get("proxycommand") or ""))

    def _jumps(self, way: str, base: SshTarget, depth: int) -> SshTarget:
        from clusterctl.spec.host_names import split_machine

        if depth > _MOST_JUMPS:
            raise self._wrong(f"ProxyJump {way} leads back to itself")
        jump: SshTarget | None = None
        for text in way.split(","):
            try:
                user, host, port = split_machine(text.strip().removeprefix("ssh://"))
            except ValueError as error:
                raise self._wrong(f"ProxyJump: {error}") from error
            jump = self.jump(user, host, port, replace(base, jump=jump), depth)
        assert jump is not None
        return jump

    def _lookup(self, host: str) -> Mapping[str, object]:
        if self._parsed is None:
            return {}
        import paramiko

        try:
            found: Mapping[str, object] = self._parsed.lookup(host)
            return found
        except (paramiko.SSHException, ImportError, ValueError, KeyError) as error:  # of `Match exec`
            raise self._wrong(error) from error

    def _wrong(self, what: object) -> UsageProblem:
        return UsageProblem(f"the SSH configuration {self._file} is not understood: {what}", _HINT)


def _written(host: str, port: int) -> str:
    if port in (0, 22):
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _files(words: object) -> tuple[str, ...]:
    names = [name for name in shlex.split(str(words)) if name.lower() != NONE]
    return tuple(os.path.expanduser(name.replace("%d", "~", 1)) for name in names)


def _lines(path: str, depth: int, block: str = _EVERY_HOST) -> Iterator[str]:
    """The lines of a configuration without comments, those of the files that it includes in their place.

    Args:
        depth: how many files include this one.
        block: the `Host` or `Match` line to which the beginning of the file belongs.

    Raises:
        OSError: it cannot be read, or is included by itself.
        UsageProblem: paramiko would take it for something else than ssh does.
    """
    outer = block
    with open(path, encoding="utf-8") as file:
        for whole in file.read().splitlines():
            line = _without_comment(whole)
            key, _, value = line.strip().replace("=", " ", 1).partition(" ")
            if key.lower() in ("host", "match"):
                if not _is_for_all(outer):
                    raise UsageProblem(
                        f"the SSH configuration {path} has the line `{line.strip()}`, and is included inside "
                        f"`{outer.strip()}`: ssh reads it for these hosts only, which is not possible here",
                        _HINT,
                    )
                _check_match(path, line)
                block = line
            if key.lower() != "include":
                yield line
                continue
            if depth >= _MOST_INCLUDES:
                raise OSError(f"{path} includes files that include others, {depth} deep")
            for pattern in shlex.split(value):
                place = os.path.join(os.path.expanduser("~/.ssh"), os.path.expanduser(pattern))
                for found in sorted(glob.glob(place)):
                    yield from _lines(found, depth + 1, block)
                    yield block  # what follows belongs to it again


def _is_for_all(block: str) -> bool:
    return block.lower().replace("=", " ").split() in (["host", "*"], ["match", "all"])


def _check_match(path: str, line: str) -> None:
    """Refuses criteria that paramiko would pass over, as if they were met."""
    words = iter(line.split()[1:] if line.split()[0].lower() == "match" else ())
    for word in words:
        criterion = word.lstrip("!").lower()
        if criterion not in _CRITERIA:
            raise UsageProblem(
                f"the SSH configuration {path} has `{line.strip()}`, and `Match {criterion}` is not understood here",
                _HINT,
            )
        if criterion == "exec":
            return  # the rest is a command
        if criterion not in _WITHOUT_VALUE:
            next(words, None)


def _without_comment(line: str) -> str:
    """A line up to its comment, as ssh reads it. Commands are left alone: a shell reads their comments."""
    key = line.strip().replace("=", " ", 1).partition(" ")[0].lower()
    if key.endswith("command") or key == "match":
        return line
    is_quoted = False
    for at, character in enumerate(line):
        if character == '"':
            is_quoted = not is_quoted
        elif character == "#" and not is_quoted and (at == 0 or line[at - 1].isspace()):
            return line[:at].rstrip()
    return line
