"""What says on a machine whose it is: `~/.clusterctl-node/machine.json`, made by one hard link, which succeeds for
one only. The scripts here need a POSIX shell; the one that ends processes needs the Python that nodes need anyway.
"""

from __future__ import annotations

import inspect
import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from autoscaler.provider import Machine, MachineState, MachineTags, ShellError
from clusterctl import processes
from clusterctl.providers.ownership import OWNER_NAME_TAG, OWNER_TAG, Owner
from clusterctl.shell import scripts
from clusterctl.spec.node_dir import NODE_FOLDER, SOCKETS, sockets_dir
from clusterctl.sync import receiver

FOLDER = NODE_FOLDER
FILE = f"{FOLDER}/machine.json"
_KEYS = ".ssh/authorized_keys"


NOT_OURS = 44


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that was taken.

    Attributes:
        id: of the machine in this life; it gets another when it is given back and taken again.
        host: its name.
        entry: as the spec had it, to reach it by when the spec names it no more.
        hostname: its own, so that home directories that several machines share are noticed.
        session_dir: the folder of its node's state.
    """

    id: str
    host: str
    entry: str
    hostname: str
    node_type: str
    tags: dict[str, str]
    launched_s: float
    address: str
    home: str
    path: str
    session_dir: str

    @property
    def cluster(self) -> str:
        """The cluster that has it, and whose that is, in words."""
        owner = Owner(self.tags.get(OWNER_TAG, ""), self.tags.get(OWNER_NAME_TAG, ""))
        name, cluster_id = (
            self.tags.get(tag, "?") for tag in (MachineTags.CLUSTER_NAME, MachineTags.CLUSTER_ID)
        )
        return f"cluster '{name}' ({cluster_id}) of {owner}"

    def machine(self, unreachable: str = "", is_wanted: bool = True) -> Machine:
        """As the provider lists it."""
        return Machine(
            id=self.id,
            state=MachineState.RUNNING,
            node_type=self.node_type,
            tags=self.tags,
            address=self.address,
            public_address=self.host,
            launched_s=self.launched_s,
            unreachable=unreachable,
            unwanted="" if is_wanted else "the spec names its machine no more",
        )

    def environment(self, python: str) -> dict[str, str]:
        """Of everything that runs there."""
        runtime = f"{self.home}/{FOLDER}/runtime/bin"
        return {
            processes.TAG: self.id,
            "PATH": f"{runtime}:{self.path}",
            "CLUSTERCTL_PYTHON": f"{runtime}/python",
            "CLUSTERCTL_BASE_PYTHON": scripts.in_home(python, self.home),
            "CLUSTERCTL_SESSION_DIR": self.session_dir,
            SOCKETS: sockets_dir(self.session_dir),
            "PYTHONUNBUFFERED": "1",
        }


def id_on(host: str, suffix: str) -> str:
    """The id of a machine's life."""
    return f"{host}~{suffix}"


def host_of(machine_id: str) -> str:
    """The machine's name in the spec."""
    return machine_id.rpartition("~")[0]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a machine says of itself."""

    hostname: str
    address: str
    home: str
    uid: str
    path: str
    cpus: float
    memory: float
    claim: Claim | None


LOOK = f"""\
claim=
read -r name < /proc/sys/kernel/hostname
while read -r key uid rest; do [ "$key" != Uid: ] || break; done < /proc/self/status
read -r cpus < /sys/devices/system/cpu/online
read -r key kib rest < /proc/meminfo
[ ! -f {FILE} ] || read -r claim < {FILE}
printf '%s\\n' "$name" "$SSH_CONNECTION" "$HOME" "$uid" "$PATH" "$cpus" "$kib" "$claim"
"""
"""Starts no program, and reads no byte too many: it runs on every machine, again and again."""


def read_facts(output: str) -> Facts:
    """Reads what `LOOK` prints.

    Raises:
        ShellError: it is something else.
    """
    lines = output.split("\n", 7)
    try:
        hostname, connection, home, uid, path, cpus, kib, claim = lines
        return Facts(
            hostname=hostname,
            address=connection.split()[2],
            home=home,
            uid=uid,
            path=path,
            cpus=_count(cpus),
            memory=float(kib) * 1024,
            claim=msgspec.json.decode(claim, type=Claim) if claim.strip() else None,
        )
    except (ValueError, IndexError, msgspec.MsgspecError) as error:
        raise ShellError(
            f"what the machine says of itself cannot be read ({error}): {output[:500]!r}"
        ) from error


def look_here() -> Facts:
    """The same of this machine, which need not enter itself. It has no address but that of its claim."""
    ran = subprocess.run(
        ["/bin/sh", "-c", LOOK],
        cwd=os.path.expanduser("~"),
        env={**os.environ, "SSH_CONNECTION": "- - - -"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return read_facts(ran.stdout)


def _count(ranges: str) -> float:
    """How many numbers the kernel's list has: "0-3,8" has five."""
    bounds = [part.partition("-") for part in ranges.split(",")]
    return float(sum(int(last or first) - int(first) + 1 for first, _, last in bounds))


def take(claim: Claim) -> tuple[str, Mapping[str, str]]:
    """Command and environment that claim a free machine; the command prints the claim that holds afterwards. The
    claim's other name stays beside it: to remove it would be one program more on every machine."""
    # No other claim's draft has this name: what is written to it becomes the claim.
    draft = f"{FOLDER}/.claim.{shlex.quote(os.path.basename(claim.session_dir))}"
    session = shlex.quote(claim.session_dir)
    command = f"""\
umask 077
mkdir -p {FOLDER} {session} || exit 1
[ -O {session} ] || {{ echo {session} belongs to another user: remove it; exit 1; }}
printf %s "$CLAIM" > {draft} || exit 1
if said=$(ln {draft} {FILE} 2>&1); then printf %s "$CLAIM"; exit; fi
rmdir {session}; rm -f {draft}
claim=; {{ read -r claim < {FILE}; }} 2>/dev/null
[ -n "$claim" ] || {{ echo "its home folder must allow hard links, and does not: $said"; exit 1; }}
printf %s "$claim"
"""
    return command, {"CLAIM": msgspec.json.encode(claim).decode()}


def give_back(claim: Claim, python: str) -> tuple[str, Mapping[str, str]]:
    """Command and environment that end all that runs for the claim, and remove all that was written for it; the
    claim itself last. The command prints the processes that do not end; where the machine has another claim, or none,
    it ends with `NOT_OURS`. Mounts go as well, but for files that were there before or were changed. A node in a
    container left word how to remove that."""
    script = f"{inspect.getsource(processes)}\nprint(*end([{claim.id!r}]))\n"
    take_back = f"{inspect.getsource(receiver)}\ntake_back({f'{FOLDER}/sync'!r})\n"
    session, sockets = shlex.quote(claim.session_dir), shlex.quote(sockets_dir(claim.session_dir))
    command = f"""\
cd && case "$(cat {FILE})" in *{shlex.quote(_id_in(claim))}*) ;; *) exit {NOT_OURS};; esac
[ ! -f {FOLDER}/leave ] || . {FOLDER}/leave || exit 1
stuck=$({scripts.path(python)} -I -c 'import os; exec(os.environ["END"])') || exit 1
[ -z "$stuck" ] || {{ echo "$stuck"; exit 1; }}
[ ! -d {FOLDER}/sync ] || {scripts.path(python)} -I -c 'import os; exec(os.environ["TAKE_BACK"])' || exit 1
rm -rf {session} {sockets}; rmdir "$(dirname {session})" 2>/dev/null
for entry in {FOLDER}/* {FOLDER}/.[!.]*; do [ "$entry" = {FILE} ] || rm -rf "$entry"; done
rm -rf {FOLDER}"""
    return command, {"END": script, "TAKE_BACK": take_back}


def guard(claim: Claim) -> str:
    """Script before every other on the machine: where it was given back nothing of the claim runs any more, and leaves
    nothing behind. Starts no program."""
    said = shlex.quote(f"machine {claim.id} was given back")
    return (
        f"claim=; {{ read -r claim < {FILE}; }} 2>/dev/null\n"
        f'case "$claim" in *{shlex.quote(_id_in(claim))}*) ;; *) echo {said}; exit {NOT_OURS};; esac\n'
    )


def _id_in(claim: Claim) -> str:
    """What the file of the claim has, and that of no other."""
    return f'"id":"{claim.id}"'


def let_in(public_key: str) -> tuple[str, Mapping[str, str]]:
    """Command and environment that let the owner of a key in, in the place of one with the same mark (its last word).
    Repeating it changes nothing. Starts no program where there is none with the mark."""
    mark = public_key.rpartition(" ")[2]
    command = f"""\
umask 077
[ -d .ssh ] || mkdir .ssh || exit
end=
[ ! -e {_KEYS} ] || while IFS= read -r line || {{ [ -n "$line" ] && end='\\n'; }}; do
    case $line in
        "$KEY") exit 0;;
        *" $MARK") {_rewrite('echo "$KEY"')}; exit;;
    esac
done < {_KEYS}
printf "$end%s\\n" "$KEY" >> {_KEYS}
"""
    return command, {"KEY": public_key, "MARK": mark}


def keep_out(mark: str) -> tuple[str, Mapping[str, str]]:
    """Command and environment that undo `let_in`."""
    return f'! grep -q " $MARK\\$" {_KEYS} 2>/dev/null || {_rewrite(":")}', {"MARK": mark}


def _rewrite(add: str) -> str:
    """Whole or not at all: nobody is locked out by an interruption, or by a full disk."""
    new = f"{_KEYS}.$$"
    lines = f'{{ grep -v " $MARK\\$" {_KEYS} || [ $? = 1 ]; }} && {add}'  # 1: it has no other
    return f"{{ cp -p {_KEYS} {new} && {{ {lines}; }} > {new} && mv {new} {_KEYS} || {{ rm -f {new}; false; }}; }}"
