"""Helpers of the public modules: arguments of `init`, options of tasks and actors, cluster views."""
