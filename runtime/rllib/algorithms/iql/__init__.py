from runtime.rllib.algorithms.iql.iql import IQL, IQLConfig

__all__ = ["IQL", "IQLConfig"]
