from runtime.rllib.algorithms.bc.bc import BC, BCConfig

__all__ = ["BC", "BCConfig"]
