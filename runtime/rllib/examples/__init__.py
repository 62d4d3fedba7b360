"""Modules and learners that programs import from Ray's `rllib.examples`."""
