"""Methods of `Dataset` that write its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.data._plan import nodes
from runtime.data._plan.rules import optimize

from .compute import compute_of
from .splitting import Splitting


class Writing(Splitting):
    """See `Dataset`."""

    def write_datasink(
        self,
        datasink: Any,
        *,
        ray_remote_args: Mapping[str, Any] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Writes the rows to a sink, and commits when all tasks have succeeded.

        Raises:
            BaseException: that of the sink or of the plan, after the sink was told (`on_write_failed`).
        """
        from runtime import cloudpickle
        from runtime.data.datasource import WriteResult

        known = self.schema(fetch_if_missing=False)
        datasink.on_write_start(None if known is None else known.base_schema)
        if datasink.skips_write:
            return
        compute = compute_of(None, None, concurrency, {}, ray_remote_args or {})
        node = optimize(nodes.Write(self._node, datasink, compute))
        results = []
        try:
            import runtime

            for ref, bundle in self._bundles(node):
                told = runtime.get(ref).slice(bundle.start, bundle.rows).to_pylist()
                results += [
                    WriteResult(row["rows"], row["bytes"], [cloudpickle.loads(row["result"])]) for row in told
                ]
            datasink.on_write_complete(WriteResult.combine(*results))
        except BaseException as error:
            datasink.on_write_failed(error)
            raise
