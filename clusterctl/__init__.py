"""What an operator runs: the command line, cluster specs, the launcher, providers, jobs and the head's
composition.

May import `autoscaler` and `runtime`; neither imports this package. Commands import lazily, so that `--help`
is quick.
"""

__version__ = "0.1.0"
