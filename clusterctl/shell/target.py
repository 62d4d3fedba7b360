"""Where and how a machine is entered by SSH."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SshTarget:
    """Where and how to enter a machine.

    Attributes:
        known_hosts: the file of pinned host keys; a machine that is not in it is added when it is first seen.
        user: "" for the caller's name.
        key_file: the only private key to try; "": those of the agent, then ~/.ssh.
        proxy_command: a command whose input and output lead to the machine; %h, %p and %r are its host, port, user.
        jump: go through this machine.
        name: what it is called where that is neither its host nor its port.
        identities: without `key_file`, private keys to try beside the agent's; none: those of ~/.ssh.
        identities_only: no key of the agent is tried.
        certificate: of one of these private keys.
        users_known_hosts: files of host keys that the user trusts already; a key from them is pinned.
        host_key_alias: the machine's name in these files.
        is_strict: a machine whose host key is in none of the files is not entered.
    """

    host: str
    known_hosts: str
    port: int = 22
    user: str = ""
    key_file: str = ""
    proxy_command: str = ""
    jump: SshTarget | None = None
    name: str = ""
    identities: tuple[str, ...] = ()
    identities_only: bool = False
    certificate: str = ""
    users_known_hosts: tuple[str, ...] = ()
    host_key_alias: str = ""
    is_strict: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        place = f"{self.user}@{host}:{self.port}" if self.user else f"{host}:{self.port}"
        return f"{self.name} ({place})" if self.name else place
