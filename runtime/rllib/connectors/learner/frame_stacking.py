"""Stacked frames, for learners."""

from __future__ import annotations

import functools

from ..common.frame_stacking import FrameStacking

FrameStackingLearner = functools.partial(FrameStacking, as_learner_connector=True)
