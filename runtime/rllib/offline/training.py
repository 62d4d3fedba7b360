"""The training step that all offline algorithms share."""

from __future__ import annotations

from typing import Any

from runtime.rllib.utils.metrics import (
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    OFFLINE_SAMPLING_TIMER,
    TIMERS,
)

_ROWS_PER_UPDATE = 1 << 17  # that one update call gets at most, to bound memory


def offline_training_step(algorithm: Any) -> None:
    """Draws train batches from `algorithm.offline_data` and updates the learners with them.

    There are `dataset_num_iters_per_learner` batches of `train_batch_size_per_learner` rows for each learner, or as
    many as one epoch over the data has. The config's `trains_on_segments` says whether the learners get segments of
    episodes, as value targets need, or single rows. Recurrent modules always get segments.
    """
    config, data, metrics = algorithm.config, algorithm.offline_data, algorithm.metrics
    learners = max(1, config.num_learners)
    per_batch = config.train_batch_size_per_learner
    batches = config.dataset_num_iters_per_learner or max(1, -(-data.num_rows() // (per_batch * learners)))
    segments = config.trains_on_segments or config.is_stateful
    at_once = 1 if config.updates_batch_by_batch else max(1, _ROWS_PER_UPDATE // per_batch)
    for done in range(0, batches, at_once):
        rows = per_batch * min(at_once, batches - done) * learners
        with metrics.log_time((TIMERS, OFFLINE_SAMPLING_TIMER)):
            experience = (
                {"rollouts": data.sample_rollouts(rows)} if segments else {"batch": data.sample(rows)}
            )
        metrics.log_value(NUM_ENV_STEPS_SAMPLED_LIFETIME, rows, reduce="lifetime_sum")
        with metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
            results = algorithm.learner_group.update(
                **experience,
                minibatch_size=per_batch,
                timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: metrics.peek(NUM_ENV_STEPS_SAMPLED_LIFETIME)},
            )
        metrics.aggregate(results, key=LEARNER_RESULTS)
