"""`up` of a cluster that runs Ray itself (`runtime: {kind: ray}`). No daemon of ours is on its machines: the launcher
makes the workers, too, and asks Ray which of them have joined."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from autoscaler.provider import Machine, NodeType, SetupError, ShellError
from clusterctl.errors import SetupFailed, TimedOut

from . import machines, node_types, ray_nodes, setup
from .board import NodeRow
from .buying import Buyer
from .plan import Facts, Plan, Restart, without_autoscaler
from .up import Up

_ASK_S = 30.0
_POLL_S = 1.0
_AT_ONCE = 16


class RayUp(Up):
    """One run of `up` for such a cluster."""

    _stop = "ray stop"

    def plan(self, restart: Restart, facts: Facts | None = None) -> Plan:
        return without_autoscaler(super().plan(restart, facts))

    def _lacks_workers(self) -> bool:
        """Whether workers are missing, lost or too many."""
        listed = machines.existing(self._provider)
        todo = ray_nodes.workers(self._spec, listed)
        lost = {machine.address for machine in listed if not machine.is_head} - self._joined()
        return bool(todo.missing or todo.surplus or lost)

    def _head_facts(self, head: Machine) -> setup.NodeFacts:
        kind = node_types.head_type(self._spec, self._provider.default_resources())
        name = self.record.name
        secret, digests = self._home.secret(name), self._home.digests_file(name)
        return ray_nodes.head_facts(self._spec, head, kind, secret, digests)

    def _addresses(self, output: str) -> tuple[str, str]:
        head = self._head()
        api = f"http://127.0.0.1:{ray_nodes.dashboard_port(self._spec)}"
        return f"{head.address}:{ray_nodes.port(self._spec)}", api

    def _await_workers(self) -> int:
        """Makes the workers that are missing, sets up those that have not joined, ends those that are too many."""
        deadline = time.monotonic() + self._timeout_s
        self._prepare_for_new_spec()
        self._remember_spec()
        buyer = Buyer(self._home, self.record, self._provider)
        listed = buyer.existing()
        todo = ray_nodes.workers(self._spec, listed)
        if todo.surplus:
            self._watcher.say(f"ending {len(todo.surplus)} worker{'s' if len(todo.surplus) > 1 else ''}")
            machines.end_all(self._provider, only=set(todo.surplus))
        found = [machine for machine in listed if not machine.is_head and machine.id not in todo.surplus]
        kinds = {
            kind.name: kind for kind in node_types.node_types(self._spec, self._provider.default_resources())
        }
        for name, count in todo.missing.items():
            self._watcher.say(f"creating {count} {name}")
            tags = ray_nodes.worker_tags(self._spec, self.record.cluster_id, name)
            found += buyer.buy(kinds[name], count, tags)
        head = self._head()
        joined = self._joined() if found else frozenset()
        new = [machine for machine in found if machine.address not in joined or not machine.address]
        if new:
            self._watcher.say(f"setting up {len(new)} worker{'s' if len(new) > 1 else ''}")
            wanted = self._set_up_all(new, kinds, head.address)
            self._await_joined(wanted, deadline)
        buyer.finish()
        return len(found)

    def _refresh_workers(self) -> None:
        """There is no head of ours that does it."""
        kinds = {kind.name: kind for kind in self._kinds()}
        listed = machines.existing(self._provider)
        running = [machine for machine in listed if not machine.is_head and machine.node_type in kinds]
        if running:
            self._watcher.say("bringing the workers up to date")
            self._set_up_all(running, kinds, self._head().address, starts=False)

    # -- inside

    def _set_up_all(
        self, new: list[Machine], kinds: dict[str, NodeType], head_host: str, starts: bool = True
    ) -> dict[str, str]:
        """Sets the machines up, many at a time; returns address -> machine id.

        Raises:
            SetupFailed: at least one could not be; it names each with its step.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            futures: dict[str, Future[str]] = {
                machine.id: pool.submit(self._set_up, machine.id, kinds[machine.node_type], head_host, starts)
                for machine in new
            }
        failures = [str(error) for future in futures.values() if (error := future.exception()) is not None]
        if failures:
            raise SetupFailed(
                "\n".join(failures),
                "Correct the spec and run `clusterctl up` again, or end the cluster with `clusterctl down`.",
            )
        return {future.result(): machine_id for machine_id, future in futures.items()}

    def _set_up(self, machine_id: str, kind: NodeType, head_host: str, starts: bool = True) -> str:
        machine = machines.await_running(self._provider, machine_id)
        secret, digests = self._home.secret(self.record.name), self._home.digests_file(self.record.name)
        facts = ray_nodes.worker_facts(
            self._spec,
            machine,
            head_host,
            kind,
            secret,
            digests,
            self._provider.capabilities.shutdown_ends,
        )
        if not starts:
            facts = setup.without_start(facts)
        log_path = self._home.folder(self.record.name) / "logs" / f"setup-{machine.instance_id}.log"
        what = f"node {machine_id} ({kind.name})"
        shell = self._shell(machine)
        try:
            with setup.open_log(str(log_path)) as log:
                setup.run(shell, facts, log, partial(self._worker_does, machine_id, kind.name))
        except SetupError as error:
            raise SetupFailed(
                f"{what} at step '{error.step}': {error.reason}\n  its setup log: {log_path}"
            ) from error
        except ShellError as error:
            raise SetupFailed(f"{what}: its shell failed: {error}") from error
        finally:
            shell.close()
        return machine.address

    def _worker_does(self, machine_id: str, kind: str, step: str) -> None:
        self._watcher.nodes([NodeRow(machine_id, kind, f"set up: {step}")])

    def _await_joined(self, wanted: dict[str, str], deadline: float) -> None:
        while True:
            missing = set(wanted) - self._joined()
            if not missing:
                return
            if time.monotonic() >= deadline:
                names = ", ".join(sorted(wanted[address] for address in missing))
                raise TimedOut(
                    f"Ray runs on {names} and has not joined after {self._timeout_s:g} s",
                    f"Its ports must be open between the machines; {ray_nodes.port(self._spec)} is the head's.",
                )
            time.sleep(_POLL_S)

    def _joined(self) -> frozenset[str]:
        """The addresses of Ray's living nodes."""
        return ray_nodes.alive(self.api().get(ray_nodes.NODES, timeout_s=_ASK_S))
