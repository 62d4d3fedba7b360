"""Environments, their episodes, and the runners that step through them."""

INPUT_ENV_SPACES = "__env__"
INPUT_ENV_SINGLE_SPACES = "__env_single__"
