"""Sets up workers, and brings them what changes of the head's files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from autoscaler.provider import (
    LaunchRequest,
    Machine,
    NodeType,
    ProviderError,
    SetupError,
    Shell,
    machine_labels,
)
from clusterctl.launcher import containers, setup, shipping, steps
from clusterctl.launcher.runtimes import engine_nodes
from clusterctl.launcher.setup import NodeFacts
from clusterctl.providers.protocol import OperatorProvider
from clusterctl.spec.definition import ClusterSpec
from clusterctl.startup.order import JoinToken

_MOST_LOGS = 200


class WorkerSetup:
    """`autoscaler.provider.NodeSetup` for the workers of a cluster, and what keeps their files up to date.

    Args:
        log_dir: where the logs are.
        digests: where digests of the head's mounts are kept.
        on_step: told instance and step; "" when its setup has ended.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        provider: OperatorProvider,
        node_types: Sequence[NodeType],
        control_address: str,
        secret_file: str,
        log_dir: str,
        digests: str = "",
        on_step: Callable[[str, str], None] = lambda instance_id, step: None,
    ) -> None:
        self._on_step = on_step
        self._spec = spec
        self._provider = provider
        self._node_types = {kind.name: kind for kind in node_types}
        self._control_address = control_address
        self._secret_file = secret_file
        self._log_dir = log_dir
        self._digests = digests
        self._changes = 0
        self._machines_join = provider.capabilities.machines_join

    @property
    def syncs_continuously(self) -> bool:
        """Whether workers shall get what changes of their own accord."""
        return self._spec.file_mounts_sync_continuously

    def join_tokens(self, request: LaunchRequest) -> tuple[str, ...]:
        """See `NodeSetup.join_tokens`."""
        kind, secret = request.node_type, Path(self._secret_file).read_text(encoding="ascii").strip()
        return tuple(
            JoinToken(
                address=self._control_address,
                secret=secret,
                resources=dict(kind.resources),
                labels=machine_labels(kind, request.offer.zone, request.offer.market),
                node_type=kind.name,
                instance_id=instance_id,
            ).text()
            for instance_id in request.instance_ids
        )

    def run(self, machine: Machine, node_type: NodeType, instance_id: str, log_path: str) -> None:
        """See `NodeSetup.run`."""
        _drop_oldest(Path(log_path).parent)
        tell = partial(self._on_step, instance_id)
        with setup.open_log(log_path) as log:
            log.write(f"machine {machine.id}, instance {instance_id}, node type {node_type.name}")
            if self._machines_join:
                log.write("it joins by itself; its own log says why, if it does not")
                return
            facts = self._facts(machine, node_type, instance_id)
            seen = self._changes
            try:
                with self._shell(machine) as shell:
                    setup.run(shell, facts, log, tell)
                    while seen != self._changes:  # it may have got files of before
                        seen = self._changes
                        setup.run(shell, setup.without_start(facts), log, tell)
            finally:
                tell("")

    def expire(self) -> None:
        """The head's files have changed: whoever is being set up now gets them again."""
        self._changes += 1

    def refresh(self, machine: Machine) -> None:
        """Brings a worker that runs the head's files, and runs its setup commands again.

        Raises:
            SetupError: a step failed.
        """
        kind = self._node_types.get(machine.node_type)
        if kind is None or self._machines_join:
            return  # the spec knows its type no more, and it will be drained; or it has what its image has
        facts = setup.without_start(self._facts(machine, kind, machine.instance_id))
        log_path = os.path.join(self._log_dir, f"setup-{machine.instance_id}.log")
        with setup.open_log(log_path) as log, self._shell(machine) as shell:
            log.write("bringing it up to date")
            setup.run(shell, facts, log)

    def files_digest(self) -> str:
        """Of what the head has for its workers.

        Raises:
            SyncError: something cannot be read.
        """
        return setup.files_digest(setup.heads_mounts(self._spec), self._digests)

    def bring(self, machine: Machine) -> None:
        """Brings a worker the head's files, and no more.

        Raises:
            SyncError: a file cannot be read or written.
            SetupError, ShellError: it cannot be entered.
        """
        if self._machines_join:
            return
        with self._shell(machine) as shell:
            inside = containers.shell_of(self._spec, machine.node_type, False, shell)
            steps.bring(inside, setup.heads_mounts(self._spec), self._digests)

    # -- inside

    def _facts(self, machine: Machine, node_type: NodeType, instance_id: str) -> NodeFacts:
        runtime = None if self._provider.head_extras is None else shipping.for_worker
        facts = engine_nodes.worker_facts(
            self._spec,
            machine,
            node_type,
            instance_id,
            self._control_address,
            self._secret_file,
            runtime,
        )
        is_cloud = self._provider.capabilities.shutdown_ends
        return replace(facts, digests=self._digests, is_cloud=is_cloud)

    @contextlib.contextmanager
    def _shell(self, machine: Machine) -> Iterator[Shell]:
        try:
            shell = self._provider.shell(machine)
        except ProviderError as error:
            raise SetupError("wait for the shell", str(error)) from error
        try:
            yield shell
        finally:
            shell.close()


def _drop_oldest(folder: Path) -> None:
    """Setup logs stay when their machines are gone, but not all of them for ever."""
    with contextlib.suppress(OSError):
        found = sorted(folder.glob("setup-*.log"), key=os.path.getmtime)
        for path in found[: -_MOST_LOGS + 1]:
            path.unlink(missing_ok=True)
