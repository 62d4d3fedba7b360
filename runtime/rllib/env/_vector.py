"""Makes vector environments of what the configuration names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runtime.rllib._core.types import DEFAULT_MODULE_ID, Config
from runtime.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from runtime.rllib.env.env_context import EnvContext

EnvCreator = Callable[[EnvContext], Any]

# With fewer environments a loop over them is faster than arrays of them (CartPole: a step of 8 takes 45 us as arrays,
# 95 us in a loop; one of 2 takes 40 us and 30 us).
_FEWEST_FOR_ARRAYS = 4

_CHEAP = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text")


def env_creator(config: Config) -> EnvCreator | None:
    """The function that makes one environment from its context; None if `config.env` is gymnasium's name of one.

    Raises:
        ValueError: the configuration has no environment, or a name that is not known.
    """
    env = config.env
    if env is None:
        raise ValueError("The configuration has no environment: call `config.environment(env=...)`")
    if not isinstance(env, str):
        if not callable(env):
            raise ValueError(f"The environment must be a name, a class or a function, not {env!r}")
        return env
    from runtime.tune import registry

    try:
        return registry.env_creator_of(env)
    except ValueError:
        import gymnasium

        try:
            if ":" not in env:  # else gymnasium imports the module first
                gymnasium.spec(env)
        except gymnasium.error.Error as error:
            raise ValueError(
                f"{env!r} is neither an environment of gymnasium ({error}) nor registered by `tune.register_env`"
            ) from error
        return None


def known_spaces(config: Config, creator: EnvCreator | None) -> dict[str, tuple[Any, Any]] | None:
    """What `EnvRunner.get_spaces` of a runner with default connectors gives, without one: if the configuration says the
    spaces, or an environment is cheap to make. Gymnasium's classic ones are; a simulator may not even run on this
    machine. Else None.
    """
    if config.observation_space is not None and config.action_space is not None:
        single = (config.observation_space, config.action_space)
    elif creator is None:
        import gymnasium

        entry = gymnasium.spec(config.env).entry_point
        if not isinstance(entry, str) or not entry.startswith(_CHEAP):
            return None
        env = gymnasium.make(config.env, **config.env_config)
        single = (env.observation_space, env.action_space)
        env.close()
    else:
        return None
    from gymnasium.vector.utils import batch_space

    observation, action = (batch_space(space, config.num_envs_per_env_runner) for space in single)
    return {
        INPUT_ENV_SPACES: (observation, action),
        INPUT_ENV_SINGLE_SPACES: single,
        DEFAULT_MODULE_ID: single,
    }


def make_vector_env(config: Config, context: EnvContext, creator: EnvCreator | None) -> Any:
    """A `gymnasium.vector.VectorEnv` of `config.num_envs_per_env_runner` environments.

    The mode is `config.gym_env_vectorize_mode`: "sync", "async", "vector_entry_point", or None for the environment's
    own vector entry point if that is faster and nothing prevents it, else "sync".

    Args:
        context: `env_config`, with the runner's numbers.
        creator: see `env_creator`.

    Raises:
        ValueError: there is no such mode, or it does not fit the environment.
    """
    import gymnasium
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

    count = config.num_envs_per_env_runner
    mode = _mode(config, context, creator, count)
    if mode == "vector_entry_point":
        if creator is None:
            return gymnasium.make_vec(config.env, count, vectorization_mode=mode, **context)
        made = creator(_with(context, num_envs=count))
        if not isinstance(made, VectorEnv):
            raise ValueError(
                f"With the mode 'vector_entry_point', {config.env!r} must make a VectorEnv, not {made!r}"
            )
        return made
    first: list[Any] = []
    if creator is not None and mode == "sync":
        first = [creator(context.copy_with_overrides(vector_index=0))]
        if isinstance(first[0], VectorEnv):
            return first[0]

    def make(index: int) -> Any:
        if creator is None:
            checks = {"disable_env_checker": True} if config.disable_env_checking else {}
            return gymnasium.make(config.env, **context, **checks)
        if index == 0 and first:
            return first.pop()
        return creator(context.copy_with_overrides(vector_index=index))

    def maker(index: int) -> Callable[[], Any]:
        return lambda: make(index)

    makers = [maker(index) for index in range(count)]
    if mode == "async":
        return AsyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)


def _mode(config: Config, context: EnvContext, creator: EnvCreator | None, count: int) -> str:
    given = config.gym_env_vectorize_mode
    if given is None:
        if creator is not None or context or count < _FEWEST_FOR_ARRAYS:
            return "sync"
        import gymnasium

        spec = gymnasium.spec(config.env)
        return "vector_entry_point" if spec.vector_entry_point and not spec.additional_wrappers else "sync"
    mode = str(getattr(given, "value", given)).lower()
    if mode not in ("sync", "async", "vector_entry_point"):
        raise ValueError(
            f"gym_env_vectorize_mode must be 'sync', 'async' or 'vector_entry_point', not {given!r}"
        )
    return mode


def _with(context: EnvContext, **more: Any) -> EnvContext:
    return context.copy_with_overrides({**context, **more})


def info_list(infos: Mapping[str, Any] | list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The infos of a vector environment, one dict per environment. Gymnasium's vector environments give one dict of
    arrays, with a mask `_key` for each `key`.
    """
    if isinstance(infos, list):
        return infos
    result: list[dict[str, Any]] = [{} for _ in range(count)]
    for key, values in infos.items():
        if key.startswith("_") and key[1:] in infos:
            continue
        items = info_list(values, count) if isinstance(values, Mapping) else values
        mask = infos.get(f"_{key}")
        for index in range(count):
            if mask is None or mask[index]:
                result[index][key] = items[index]
    return result
