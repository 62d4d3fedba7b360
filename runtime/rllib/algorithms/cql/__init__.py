from runtime.rllib.algorithms.cql.cql import CQL, CQLConfig

__all__ = ["CQL", "CQLConfig"]
