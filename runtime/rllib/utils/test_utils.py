"""The path from which older scripts import what `rllib.examples.utils` has."""

from __future__ import annotations

from ..examples.utils import add_rllib_example_script_args, run_rllib_example_script_experiment, should_stop

__all__ = ["add_rllib_example_script_args", "run_rllib_example_script_experiment", "should_stop"]
