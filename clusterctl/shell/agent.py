"""The user's ssh-agent."""

from __future__ import annotations

import socket
import struct

from clusterctl import settings

_ANSWER_S = 3.0
_REQUEST_IDENTITIES = struct.pack(">IB", 1, 11)  # draft-ietf-sshm-ssh-agent, 3.5


def silence() -> str:
    """Says that there is an agent which does not answer; "" otherwise. paramiko would wait for it without a limit."""
    path = settings.SSH_AGENT.get()
    if not path:
        return ""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(_ANSWER_S)
        try:
            stream.connect(path)
            stream.sendall(_REQUEST_IDENTITIES)
            if stream.recv(1):
                return ""
        except (TimeoutError, BlockingIOError):  # the latter: so many wait for it that nobody else may
            pass
        except OSError:
            return ""  # it is gone: there is none
    return (
        f"the ssh-agent at {path} did not answer within {_ANSWER_S:g} s, so that its keys were not tried: start it "
        "anew, unset SSH_AUTH_SOCK, or set auth.ssh_private_key"
    )
