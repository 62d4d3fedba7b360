"""See `runtime.testing`."""

from runtime.compat._common.test_utils import *  # noqa: F403
