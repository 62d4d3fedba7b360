"""`ray._private.test_utils`: see `runtime.testing`."""

from typing import Any

from runtime import put, remote
from runtime.compat._common.test_utils import *  # noqa: F403


@remote
def _put(value: Any) -> Any:
    return value


def put_object(obj: Any, use_ray_put: bool) -> Any:
    """A reference to `obj`: put here, or the result of a task."""
    return put(obj) if use_ray_put else _put.remote(obj)


def client_test_enabled() -> bool:
    """Whether tests run through Ray's client: there is none here, drivers connect directly."""
    return False


def external_redis_test_enabled() -> bool:
    """Whether the control store's state is in a Redis: it never is here."""
    return False
