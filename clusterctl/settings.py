"""The environment variables that `clusterctl` reads beside those of the engine (`runtime/_system/settings.py`).

No other module of `clusterctl` reads one. docs/settings.md is made of both tables by `scripts/gen_settings.py`.
"""

from __future__ import annotations

import os

from runtime._system.variables import Section

_commands = Section("Commands of `clusterctl`", "Read on the operator's machine.")
JOB_HEADERS = _commands.text(
    "RAY_JOB_HEADERS",
    "HTTP headers that `clusterctl job` adds for proxies, when `--headers` is not given.",
    kind="a JSON object",
    shown_default="none",
)
JOB_SUBMIT_HOOK = _commands.text(
    "RAY_JOB_SUBMIT_HOOK",
    "Function that `clusterctl job submit` calls with its options before anything else.",
    kind="module.function",
    shown_default="none",
)
NO_COLOR = _commands.text("NO_COLOR", "When set, output has no colours.")
TERMINAL = _commands.text(
    "TERM",
    'Kind of the terminal, also for programs that `attach` starts. With "dumb", output has no colours.',
    shown_default="dumb",
)
SSH_AGENT = _commands.text(
    "SSH_AUTH_SOCK", "Socket of the user's ssh-agent.", kind="path", shown_default="no agent"
)

_machines = Section(
    "Machines of a cluster",
    "The launcher sets these for everything that it starts on a machine: daemons, setup commands, `exec` and `attach`.",
)
SESSION_DIR = _machines.text(
    "CLUSTERCTL_SESSION_DIR",
    "Folder of the machine's node: state, logs, environments, spilled objects.",
    kind="path",
    shown_default="a new one for `clusterctl start`",
)
SOCKETS_DIR = _machines.text(
    "CLUSTERCTL_SOCKETS_DIR",
    "Folder of the node's Unix sockets. Read only where CLUSTERCTL_SESSION_DIR is set.",
    kind="path",
    shown_default="in the session's folder",
)
PYTHON = _machines.text(
    "CLUSTERCTL_PYTHON", "Python with which the engine runs.", kind="path", default="python3"
)
BASE_PYTHON = _machines.text(
    "CLUSTERCTL_BASE_PYTHON",
    "The machine's own Python, from which the engine's environment is made.",
    kind="path",
    default="python3",
)
MACHINE = _machines.text(
    "CLUSTERCTL_MACHINE",
    "Marks every process of the machine, so that all of them are found when it ends.",
    kind="id of the machine",
)
SHARES_HOST = _machines.text(
    "CLUSTERCTL_SHARES_HOST", "Set where machines are groups of processes of one host (`provider: local`)."
)
HEAD_ADDRESS = _machines.text(
    "CLUSTERCTL_HEAD_IP", "The head's address, for setup and start commands. RAY_HEAD_IP has the same value."
)
LOGIN = _machines.text(
    "CLUSTERCTL_LOGIN",
    "Marks what a person started with `exec` or `attach`; `clusterctl autostop` counts it as use of the cluster.",
)

JOIN_TOKEN = _machines.text(
    "CLUSTERCTL_JOIN_TOKEN",
    "What `clusterctl start` joins a cluster by when no `--address` is given: the head's address, the cluster's secret "
    "and what the node brings. `clusterctl node token` prints one.",
    kind="joining token",
    shown_default="none",
)

SECTIONS: tuple[Section, ...] = (_commands, _machines)


def take_join_token() -> str:
    """The joining token, which nothing that this process starts inherits. It may be "", and is at a second call."""
    token = JOIN_TOKEN.get()
    os.environ.pop(JOIN_TOKEN.name, None)
    return token
