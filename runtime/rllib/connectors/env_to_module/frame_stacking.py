"""Stacked frames, between environment and module."""

from __future__ import annotations

import functools

from ..common.frame_stacking import FrameStacking

FrameStackingEnvToModule = functools.partial(FrameStacking, as_learner_connector=False)
