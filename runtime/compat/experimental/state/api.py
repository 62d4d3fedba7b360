"""`ray.experimental.state.api`."""

import warnings

from runtime.util.state import *  # noqa: F403

warnings.warn(
    "The state API is no longer experimental: import it from `ray.util.state`.",
    DeprecationWarning,
    stacklevel=2,
)
