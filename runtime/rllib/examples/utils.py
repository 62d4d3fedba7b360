"""What RLlib's example scripts share: their command line, and one function that runs an experiment from it."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import runtime
from runtime import tune

if TYPE_CHECKING:
    from ..algorithms.algorithm_config import AlgorithmConfig

RETURN = "env_runners/episode_return_mean"
STEPS = "env_runners/num_env_steps_sampled_lifetime"
ITERATIONS = "training_iteration"

# (flag, type, default, help): each becomes an option of the command line.
_VALUES: tuple[tuple[str, Any, Any, str], ...] = (
    ("algo", str, "PPO", "The registered name of the algorithm."),
    ("env", str, None, "The name of a registered environment."),
    ("num-env-runners", int, None, "How many remote EnvRunners sample. 0: the algorithm's process does."),
    ("num-envs-per-env-runner", int, None, "Environments of each EnvRunner, which one inference serves."),
    ("num-agents", int, 0, "0: one agent; else so many agents, each in its own copy of the environment."),
    ("evaluation-num-env-runners", int, 0, "Remote EnvRunners that evaluate."),
    ("evaluation-interval", int, 0, "Iterations between two evaluations. 0: none."),
    (
        "evaluation-duration",
        lambda text: text if text == "auto" else int(text),
        10,
        "Units of one evaluation.",
    ),
    ("output", str, None, "A folder to which the sampled experience is written."),
    ("num-samples", int, 1, "Trials of the experiment."),
    ("max-concurrent-trials", int, None, "Trials that run at once, at most."),
    ("verbose", int, 2, "How much Tune prints."),
    ("checkpoint-freq", int, 0, "Iterations between two checkpoints. 0: none."),
    ("tune-max-report-freq", int, 5, "Seconds between two progress reports."),
    ("wandb-key", str, None, "Key of Weights & Biases; results go there, too."),
    (
        "wandb-project",
        str,
        None,
        "Project of Weights & Biases. Default: the names of algorithm and environment.",
    ),
    ("wandb-run-name", str, None, "Name of the run at Weights & Biases."),
    ("num-learners", int, None, "Remote Learners. 0: the algorithm's process learns."),
    ("num-cpus-per-learner", float, None, "CPUs of each Learner."),
    (
        "num-gpus-per-learner",
        float,
        None,
        "GPUs of each Learner. Default: one, where the cluster has as many.",
    ),
    ("num-aggregator-actors-per-learner", int, None, "Aggregators of each Learner (IMPALA, APPO)."),
    ("num-cpus", int, 0, "CPUs of the cluster that is started. 0: those of this machine."),
    ("num-gpus", int, None, "Not used: see --num-gpus-per-learner."),
)
_SWITCHES = (
    ("evaluation-parallel-to-training", "Evaluate while the next iteration trains."),
    ("no-tune", "Call `train` in a loop instead of running Tune."),
    ("checkpoint-at-end", "Save a checkpoint of each trial at its end."),
    ("as-test", "Raise an error if the experiment ends without reaching --stop-reward."),
    ("as-release-test", "As --as-test."),
    ("old-api-stack", "Refused: there is only the new API stack."),
)
_CHOICES = (
    ("framework", ("torch", "tf", "tf2"), "torch"),
    ("evaluation-duration-unit", ("episodes", "timesteps"), "episodes"),
    ("log-level", ("DEBUG", "INFO", "WARN", "ERROR"), None),
)


def add_rllib_example_script_args(
    parser: argparse.ArgumentParser | None = None,
    default_reward: float = 100.0,
    default_iters: int = 200,
    default_timesteps: int = 100000,
) -> argparse.ArgumentParser:
    """Adds the options that all example scripts have.

    Args:
        parser: Gets the options. None: a new one.
        default_reward: Default of `--stop-reward`, a mean return of episodes.
        default_iters: Default of `--stop-iters`.
        default_timesteps: Default of `--stop-timesteps`, steps of environments.
    """
    parser = argparse.ArgumentParser() if parser is None else parser
    for flag, kind, default, text in _VALUES:
        parser.add_argument(f"--{flag}", type=kind, default=default, help=text)
    for flag, choices, preset in _CHOICES:
        parser.add_argument(f"--{flag}", choices=choices, default=preset)
    for flag, text in _SWITCHES:
        parser.add_argument(f"--{flag}", action="store_true", help=text)
    parser.add_argument("--stop-reward", type=float, default=default_reward, help="Stop at this mean return.")
    parser.add_argument(
        "--stop-iters", type=int, default=default_iters, help="Stop after so many iterations."
    )
    parser.add_argument(
        "--stop-timesteps",
        type=int,
        default=default_timesteps,
        help="Stop after so many steps of environments.",
    )
    return parser


def _value(results: Mapping[str, Any], key: str) -> float | None:
    """What a result has at "a/b/c"; None: nothing, or no number."""
    found: Any = results
    for part in key.split("/"):
        part = part.strip()
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    try:
        number = float(found)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(number) else number


def should_stop(stop: Mapping[str, float], results: Mapping[str, Any], keep_ray_up: bool = False) -> bool:
    """Whether a result has reached one of the values at which to stop.

    Args:
        stop: "env_runners/episode_return_mean" or another path into the result -> the least value that stops.
        results: Of one iteration.
        keep_ray_up: Whether the engine stays up when it is time to stop.
    """
    for key, least in stop.items():
        value = _value(results, key)
        if value is not None and value >= least:
            print(f"Stop criterion ({key}={least}) fulfilled!")
            if not keep_ray_up:
                runtime.shutdown()
            return True
    return False


def _configure(config: AlgorithmConfig, args: argparse.Namespace) -> None:
    """Applies the options to a configuration. What was not given leaves the configuration as it is."""

    def given(**options: Any) -> dict[str, Any]:
        return {name: value for name, value in options.items() if value is not None}

    config.framework(args.framework)
    if args.env is not None and config.env is None:
        config.environment(args.env)
    config.env_runners(
        **given(num_env_runners=args.num_env_runners, num_envs_per_env_runner=args.num_envs_per_env_runner)
    )
    config.learners(
        **given(
            num_learners=args.num_learners,
            num_cpus_per_learner=args.num_cpus_per_learner,
            num_aggregator_actors_per_learner=args.num_aggregator_actors_per_learner,
            num_gpus_per_learner=_gpus_per_learner(config, args),
        )
    )
    if args.evaluation_interval > 0:
        config.evaluation(
            evaluation_interval=args.evaluation_interval,
            evaluation_num_env_runners=args.evaluation_num_env_runners,
            evaluation_duration=args.evaluation_duration,
            evaluation_duration_unit=args.evaluation_duration_unit,
            evaluation_parallel_to_training=args.evaluation_parallel_to_training,
        )
    if args.log_level is not None:
        config.debugging(log_level=args.log_level)
    if args.output is not None:
        config.offline_data(output=args.output)


def _gpus_per_learner(config: AlgorithmConfig, args: argparse.Namespace) -> float:
    learners = max(1, config.num_learners if args.num_learners is None else args.num_learners)
    present = runtime.cluster_resources().get("GPU", 0)
    if args.num_gpus_per_learner is None:
        return 1 if present >= learners else 0
    wanted = float(args.num_gpus_per_learner)
    if wanted * learners > present:
        raise ValueError(
            f"{learners} Learners with {wanted:g} GPUs each need {wanted * learners:g} GPUs, and the cluster has "
            f"{present:g}. Choose other values of --num-learners or --num-gpus-per-learner"
        )
    return wanted


def _loop(config: AlgorithmConfig, stop: Mapping[str, float], iterations: int) -> dict[str, Any]:
    """Trains without Tune; prints one line for each iteration."""
    algo = config.build_algo()
    results: dict[str, Any] = {}
    try:
        for index in range(int(stop.get(ITERATIONS, iterations))):
            results = algo.train()
            line = f"iter={index} R={_value(results, RETURN)}"
            evaluated = _value(results, f"evaluation/{RETURN}")
            print(line if evaluated is None else f"{line} R(eval)={evaluated}")
            if should_stop(stop, results, keep_ray_up=True):
                break
    finally:
        algo.stop()
    return results


def _reporter(config: AlgorithmConfig, args: argparse.Namespace) -> Any:
    columns = {
        ITERATIONS: "iter",
        "time_total_s": "total time (s)",
        "num_env_steps_sampled_lifetime": "ts",
        RETURN: "episode return mean" if args.num_agents == 0 else "combined return",
    }
    if args.num_agents > 0:
        columns |= {
            f"env_runners/module_episode_returns_mean/{name}": f"return {name}" for name in config.policies
        }
    return tune.CLIReporter(metric_columns=columns, max_report_frequency=args.tune_max_report_freq)


def _wandb(config: AlgorithmConfig, args: argparse.Namespace) -> list[Any]:
    """The callback of Weights & Biases, if --wandb-key is given."""
    if not args.wandb_key:
        return []
    from runtime.tune.logger.wandb import WandbLoggerCallback

    project = (
        args.wandb_project or f"{args.algo.lower()}-{re.sub(r'[^0-9a-z]+', '-', str(config.env).lower())}"
    )
    named = {"name": args.wandb_run_name} if args.wandb_run_name else {}
    return [WandbLoggerCallback(project=project, api_key=args.wandb_key, upload_checkpoints=True, **named)]


def run_rllib_example_script_experiment(
    base_config: AlgorithmConfig,
    args: argparse.Namespace | None = None,
    *,
    stop: Mapping[str, float] | None = None,
    success_metric: Mapping[str, float] | None = None,
    trainable: Any = None,
    tune_callbacks: list[Any] | None = None,
    keep_config: bool = False,
    keep_ray_up: bool = False,
    scheduler: Any = None,
    progress_reporter: Any = None,
) -> Any:
    """Trains an algorithm as the command line says, with Tune or (`--no-tune`) in a plain loop.

    Args:
        base_config: Is changed by the options, unless `keep_config`.
        args: Of a parser with the options of `add_rllib_example_script_args`. None: parses this program's.
        stop: Path into a result -> the least value that stops. Default: --stop-reward, --stop-timesteps, --stop-iters.
        success_metric: One path into a result -> the least value that `--as-test` accepts. Default: the mean return
            (of the evaluation, if `stop` names it).
        trainable: What Tune runs. Default: the algorithm of the configuration.
        tune_callbacks, scheduler, progress_reporter: For Tune.
        keep_config: Whether the options leave the configuration alone.
        keep_ray_up: Whether the engine stays up afterwards.

    Returns:
        Tune's ResultGrid; with `--no-tune` the last result.

    Raises:
        ValueError: the options ask for what is not there (the old API stack, GPUs), or an experiment with `--as-test`
            has not reached its goal.
    """
    args = add_rllib_example_script_args().parse_args() if args is None else args
    tests = args.as_test or args.as_release_test
    if args.old_api_stack:
        raise ValueError("--old-api-stack: there is only the new API stack here. Leave the option out")
    if args.num_gpus:
        raise ValueError(
            "--num-gpus is an option of the old API stack. Use --num-learners and --num-gpus-per-learner"
        )
    if tests and args.no_tune:
        raise ValueError("--as-test compares the results of Tune: leave --no-tune out")
    runtime.init(num_cpus=args.num_cpus or None, ignore_reinit_error=True)
    stop = stop or {RETURN: args.stop_reward, STEPS: args.stop_timesteps, ITERATIONS: args.stop_iters}
    if not keep_config:
        _configure(base_config, args)
    try:
        if args.no_tune:
            return _loop(base_config, stop, args.stop_iters)
        grid = tune.Tuner(
            trainable or base_config.algo_class,
            param_space=base_config,
            tune_config=tune.TuneConfig(
                num_samples=args.num_samples,
                max_concurrent_trials=args.max_concurrent_trials,
                scheduler=scheduler,
            ),
            run_config=tune.RunConfig(
                stop=dict(stop),
                verbose=1 if tests else args.verbose,
                callbacks=[*(tune_callbacks or ()), *_wandb(base_config, args)],
                progress_reporter=progress_reporter or _reporter(base_config, args),
                failure_config=tune.FailureConfig(max_failures=0, fail_fast="raise"),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=args.checkpoint_freq, checkpoint_at_end=args.checkpoint_at_end
                ),
            ),
        ).fit()
    finally:
        if not keep_ray_up:
            runtime.shutdown()
    if tests:
        _check_goal(grid, success_metric or _goal(stop, args))
    return grid


def _goal(stop: Mapping[str, float], args: argparse.Namespace) -> dict[str, float]:
    known = [key for key in (f"evaluation/{RETURN}", RETURN) if key in stop]
    return {known[0]: stop[known[0]]} if known else {RETURN: args.stop_reward}


def _check_goal(grid: Any, goal: Mapping[str, float]) -> None:
    (key, least), *_ = goal.items()
    table = grid.get_dataframe(filter_metric=key, filter_mode="max")
    best = max(table[key], default=math.nan) if key in table else math.nan
    if not best >= least:
        raise ValueError(f"`{key}` of {least} not reached! Best value reached is {best}")
    print(f"`{key}` of {least} reached! ok")
