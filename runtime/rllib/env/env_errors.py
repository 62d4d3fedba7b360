"""Errors that environments raise on purpose."""

from __future__ import annotations


class StepFailedRecreateEnvError(Exception):
    """An environment's `step` raises it to be closed, built and reset anew, whatever the configuration says about
    failed environments. It is not logged as a failure: for simulators that crash from time to time."""
