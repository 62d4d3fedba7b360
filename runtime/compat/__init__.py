"""Support of `import ray`. `ray` is the alias, `_raylet` and `_common` have names that programs use from
Ray's internals: `ray.X` is `runtime.X`, else `runtime.compat.X`. The engine does not import this, except in workers
of jobs that use the alias.
"""
