"""Callbacks: code of users that is called at events of an algorithm."""

from __future__ import annotations

from typing import Any


class RLlibCallback:
    """Override the methods of the events that matter; each does nothing by default.

    An algorithm and each environment runner make their own object of the class, without arguments. Give the class to
    `AlgorithmConfig.callbacks(MyCallback)`. All arguments are keywords; take `**kwargs` for those that you leave out.
    `metrics_logger` logs into the results: values logged in runners appear under "env_runners".

    Runners that sample the fast way keep no objects per episode. Overriding `on_episode_created`, `on_episode_start`,
    `on_episode_step` or `on_episode_end` makes them keep episodes while they sample, which costs speed. `on_sample_end`
    gets episodes that are views into the sample.
    """

    def on_algorithm_init(self, *, algorithm: Any, metrics_logger: Any = None, **kwargs: Any) -> None:
        """`algorithm` is set up: runners, learners and modules exist."""

    def on_train_result(
        self, *, algorithm: Any, metrics_logger: Any = None, result: dict[str, Any], **kwargs: Any
    ) -> None:
        """`train()` is about to return `result`, which may be changed."""

    def on_evaluate_start(self, *, algorithm: Any, metrics_logger: Any = None, **kwargs: Any) -> None:
        """An evaluation begins."""

    def on_evaluate_end(
        self, *, algorithm: Any, metrics_logger: Any = None, evaluation_metrics: dict[str, Any], **kwargs: Any
    ) -> None:
        """An evaluation has given `evaluation_metrics`, which may be changed."""

    def on_evaluate_offline_start(self, *, algorithm: Any, metrics_logger: Any = None, **kwargs: Any) -> None:
        """An evaluation on offline data begins."""

    def on_evaluate_offline_end(
        self, *, algorithm: Any, metrics_logger: Any = None, evaluation_metrics: dict[str, Any], **kwargs: Any
    ) -> None:
        """An evaluation on offline data has given `evaluation_metrics`."""

    def on_env_runners_recreated(
        self,
        *,
        algorithm: Any,
        env_runner_group: Any,
        env_runner_indices: list[int],
        is_evaluation: bool,
        **kwargs: Any,
    ) -> None:
        """Lost runners of `env_runner_group` were replaced: those with these indices."""

    def on_offline_eval_runners_recreated(
        self,
        *,
        algorithm: Any,
        offline_eval_runner_group: Any,
        offline_eval_runner_indices: list[int],
        **kwargs: Any,
    ) -> None:
        """The same for runners of an evaluation on offline data."""

    def on_checkpoint_loaded(self, *, algorithm: Any, **kwargs: Any) -> None:
        """`algorithm` was restored from a checkpoint."""

    def on_environment_created(
        self, *, env_runner: Any, metrics_logger: Any = None, env: Any, env_context: Any, **kwargs: Any
    ) -> None:
        """`env_runner` has made `env`, a vector of environments, with `env_context`."""

    def on_episode_created(
        self,
        *,
        episode: Any,
        env_runner: Any = None,
        metrics_logger: Any = None,
        env: Any = None,
        env_index: int,
        rl_module: Any = None,
        **kwargs: Any,
    ) -> None:
        """`episode` exists; the environment with `env_index` in `env` is not reset yet."""

    def on_episode_start(
        self,
        *,
        episode: Any,
        env_runner: Any = None,
        metrics_logger: Any = None,
        env: Any = None,
        env_index: int,
        rl_module: Any = None,
        **kwargs: Any,
    ) -> None:
        """`episode` has its first observation."""

    def on_episode_step(
        self,
        *,
        episode: Any,
        env_runner: Any = None,
        metrics_logger: Any = None,
        env: Any = None,
        env_index: int,
        rl_module: Any = None,
        **kwargs: Any,
    ) -> None:
        """`episode` has the result of one more step, also of its last one."""

    def on_episode_end(
        self,
        *,
        episode: Any,
        prev_episode_chunks: list[Any] | None = None,
        env_runner: Any = None,
        metrics_logger: Any = None,
        env: Any = None,
        env_index: int,
        rl_module: Any = None,
        **kwargs: Any,
    ) -> None:
        """`episode` has terminated or was truncated. `prev_episode_chunks` are its parts in earlier samples, if the
        runner has kept them."""

    def on_sample_end(
        self, *, env_runner: Any = None, metrics_logger: Any = None, samples: list[Any], **kwargs: Any
    ) -> None:
        """`env_runner` is about to return `samples`, a list of episodes."""
