"""joblib's backend whose pool is one of actors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from joblib._parallel_backends import MultiprocessingBackend

from runtime import api
from runtime._api.cluster_view import cluster_resources
from runtime.util.multiprocessing import Pool


class RayBackend(MultiprocessingBackend):  # type: ignore[misc]
    """Runs joblib's batches in a `runtime.util.multiprocessing.Pool`.

    Args:
        nesting_level, inner_max_num_threads: arguments of joblib.
        ray_remote_args: options of the actors.
    """

    supports_sharedmem = False

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        ray_remote_args: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads, **options)
        self.ray_remote_args = ray_remote_args

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many actors `n_jobs` means: negative numbers count down from the cluster's CPUs."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return n_jobs
        if not api.is_initialized():
            api.init()
        cpus = int(cluster_resources().get("CPU", 1))
        return max(1, cpus + 1 + n_jobs)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        prefer: str | None = None,
        require: str | None = None,
        ray_remote_args: Mapping[str, Any] | None = None,
        **_memory_mapping: Any,
    ) -> int:
        """Makes the pool; joblib calls it before the first batch."""
        count = self.effective_n_jobs(n_jobs)
        options = ray_remote_args if ray_remote_args is not None else self.ray_remote_args
        self._pool: Pool | None = Pool(count, ray_remote_args=options)
        self.parallel = parallel
        return count

    def terminate(self) -> None:
        """Ends the pool."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
            pool.terminate()
