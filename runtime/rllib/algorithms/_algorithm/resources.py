"""What a trial of an algorithm needs of the cluster."""

from __future__ import annotations

from runtime.rllib._core.types import Config
from runtime.tune import PlacementGroupFactory


def request(config: Config) -> PlacementGroupFactory:
    """Bundles: the algorithm's process, then one per actor of runners, evaluating runners and learners."""
    main = {"CPU": config.num_cpus_for_main_process, **config.custom_resources_for_main_process}
    if config.num_learners == 0 and config.num_gpus_per_learner:
        main["GPU"] = config.num_gpus_per_learner
    if config.num_learners == 0 and config.num_cpus_per_learner != "auto":
        main["CPU"] = max(main["CPU"], config.num_cpus_per_learner)
    bundles = [main]
    if config.is_online or config.env is not None:
        bundles += [_runner(config)] * config.num_env_runners
    evaluation = config.get_evaluation_config_object()
    if evaluation is not None:
        bundles += [_runner(evaluation)] * evaluation.num_env_runners
    cpus = config.num_cpus_per_learner
    if cpus == "auto":
        cpus = 0 if config.num_gpus_per_learner else 1
    learner = {"CPU": cpus, "GPU": config.num_gpus_per_learner, **config.custom_resources_per_learner}
    bundles += [learner] * config.num_learners
    if config.offline_evaluation_interval and config.num_offline_eval_runners:
        offline = {
            "CPU": config.num_cpus_per_offline_eval_runner,
            "GPU": config.num_gpus_per_offline_eval_runner,
            **config.custom_resources_per_offline_eval_runner,
        }
        bundles += [offline] * config.num_offline_eval_runners
    return PlacementGroupFactory(bundles, strategy=config.placement_strategy)


def _runner(config: Config) -> dict[str, float]:
    return {
        "CPU": config.num_cpus_per_env_runner,
        "GPU": config.num_gpus_per_env_runner,
        **config.custom_resources_per_env_runner,
    }
