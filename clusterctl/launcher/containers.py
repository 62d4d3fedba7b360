"""A node in a container of its machine: which one, and the commands that make it there. Pure.

The container has the machine's network and nothing else of it. The runtime, the secret and all files go into it, so
that all of them are gone with it. What `~/.clusterctl-node` on the machine has of it: `engine`, the command that
reached docker or podman there, and `leave`, which removes the container.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass, replace

import msgspec

from autoscaler.provider import Shell
from clusterctl.shell.container import ContainerShell
from clusterctl.spec.definition import ClusterSpec
from clusterctl.spec.docker import docker_of, image_of

NAME = "clusterctl"
LABEL = "clusterctl-container"
_FOLDER = "~/.clusterctl-node"
_IDLE = 'trap "exit 0" TERM; while :; do sleep 86400 & wait $!; done'
"""What the container itself runs; it takes what daemons leave behind."""


@dataclass(frozen=True, slots=True)
class Container:
    """The container of a node.

    Attributes:
        options: further words of `docker run`, as the machine's shell reads them.
        pull: ask the registry for a newer image first.
        finds_gpus: give it the machine's GPUs, where it has some.
        sizes_shm: give it as much shared memory as the machine has memory.
        only_podman: take podman, even where there is docker.
        keeps: one of this name that is there already is taken as it is.
    """

    image: str
    name: str
    options: tuple[str, ...] = ()
    pull: bool = True
    finds_gpus: bool = True
    sizes_shm: bool = True
    only_podman: bool = False
    keeps: bool = False

    @property
    def digest(self) -> str:
        """Changes when another container is needed."""
        return hashlib.sha256(msgspec.json.encode([self.image, self.name, self.options])).hexdigest()[:16]

    def engine(self) -> str:
        """Command: finds what runs containers on the machine, and writes it down."""
        words = ("podman",) if self.only_podman else ("docker", "podman")
        tries = [*words, *(f"sudo -n -E {word}" for word in words)]
        names = " nor ".join(words)
        return f"""\
for engine in {" ".join(shlex.quote(one) for one in tries)}; do
    $engine ps >/dev/null 2>&1 || continue
    mkdir -p {_FOLDER} && echo "$engine" > {_FOLDER}/engine && echo "$engine" || exit 1
    echo {shlex.quote(self._leave())} > {_FOLDER}/leave
    exit 0
done
echo {shlex.quote(f"the machine can run no container: neither {names} works there for this user, nor with sudo")}
exit 1"""

    def _leave(self) -> str:
        """Script: removes the container, if there is one and it is ours."""
        label = f'{{{{index .Config.Labels "{LABEL}"}}}}'
        return (
            f"engine=$(cat {_FOLDER}/engine); was=$($engine container inspect -f {shlex.quote(label)} {self.name} "
            f'2>/dev/null); [ -z "$was" ] || [ "$was" = \'<no value>\' ] || $engine rm -f {self.name} >/dev/null'
        )

    def fetch(self) -> str:
        """Command: the newest image, or the one that is there."""
        image = shlex.quote(self.image)
        return f"""\
engine=$(cat {_FOLDER}/engine)
$engine pull {image} && exit 0
$engine image inspect {image} >/dev/null 2>&1 || exit 1
echo 'the image cannot be pulled; the one that is on the machine is taken'"""

    def run(self) -> str:
        """Command: the container runs, as it is described here. One that is there already and fits is kept."""
        name, image = shlex.quote(self.name), shlex.quote(self.image)
        options = " ".join(self.options)
        taken = shlex.quote(
            f"the machine has another container called {self.name}: set docker.container_name"
        )
        shm = (
            'while read -r key kib unit; do [ "$key" = MemTotal: ] && more="--shm-size ${kib}k"; done < /proc/meminfo'
            if self.sizes_shm and "--shm-size" not in options
            else ":"
        )
        fits = f'[ "$was" = {self.digest} ] && [ "$(of \'{{{{.Image}}}}\')" = "$image" ]'
        if self.keeps:
            fits = '[ -n "$was" ] && [ "$was" != "<no value>" ]'
        return f"""\
engine=$(cat {_FOLDER}/engine) || exit 1
more=
{shm}
{_GPUS if self.finds_gpus else ":"}
of() {{ $engine container inspect -f "$1" {name} 2>/dev/null; }}
image=$($engine image inspect -f '{{{{.Id}}}}' {image} 2>/dev/null)
was=$(of '{{{{index .Config.Labels "{LABEL}"}}}}')
if {fits}; then
    [ "$(of '{{{{.State.Running}}}}')" = true ] || $engine start {name} >/dev/null || exit 1
else
    case "$was" in
        ""|"<no value>") of . >/dev/null && {{ echo {taken}; exit 1; }} ;;
        *) $engine rm -f {name} >/dev/null || exit 1 ;;
    esac
    $engine run -d --name {name} --label {LABEL}={self.digest} --network host $more \\
        --entrypoint /bin/sh {options} {image} -c {shlex.quote(_IDLE)} >/dev/null || exit 1
fi
cd && $engine exec -i {name} /bin/sh -c {shlex.quote(_FURNISH)} < "$(
    [ -f {_FOLDER}/machine.json ] && echo {_FOLDER}/machine.json || echo /dev/null)"
"""


_GPUS = """\
if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi >/dev/null 2>&1; then
    case "$engine" in
        *podman) ls /etc/cdi/nvidia*.yaml /var/run/cdi/nvidia*.yaml >/dev/null 2>&1 \\
            && more="$more --device nvidia.com/gpu=all" ;;
        *) more="$more --gpus all" ;;
    esac
fi"""

_FURNISH = """\
cd && umask 077 && mkdir -p .clusterctl-node && cat > .clusterctl-node/machine.json
[ -s .clusterctl-node/machine.json ] || rm .clusterctl-node/machine.json"""


def stopped_container(name: str) -> str:
    """Command: prints "stopped" if the machine has no such container, or it does not run. Fails if nobody can tell."""
    inspect = f"$engine container inspect -f '{{{{.State.Running}}}}' {shlex.quote(name)} 2>/dev/null"
    return (
        f"engine=$(cat {_FOLDER}/engine) && $engine ps >/dev/null 2>&1 || exit 1; "
        f'[ "$({inspect})" = true ] || echo stopped'
    )


def kept(container: Container | None) -> Container | None:
    """The container as it is, whatever newer image there may be: something runs in it, or was set up there."""
    return None if container is None else replace(container, pull=False, keeps=True)


def container_of(spec: ClusterSpec, node_type: str, is_head: bool) -> Container | None:
    """The container of a node; None: it runs on the machine itself."""
    image = image_of(spec, node_type, is_head)
    if not image:
        return None
    docker = docker_of(spec, node_type)
    return Container(
        image=image,
        name=docker.container_name or NAME,
        options=(*docker.run_options, *(docker.head_run_options if is_head else docker.worker_run_options)),
        pull=docker.pull_before_run,
        finds_gpus=not docker.disable_automatic_runtime_detection,
        sizes_shm=not docker.disable_shm_size_detection,
        only_podman=docker.use_podman,
    )


def shell_of(spec: ClusterSpec, node_type: str, is_head: bool, shell: Shell) -> Shell:
    """The shell of a node, given its machine's."""
    container = container_of(spec, node_type, is_head)
    return shell if container is None else ContainerShell(shell, container.name)
