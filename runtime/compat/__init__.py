"""Programs that say `import ray`. `ray` is the alias; `_raylet` and `_common` hold names that programs take from Ray's
own internals: `ray.X` is `runtime.X`, else `runtime.compat.X`. Nothing in the engine imports this, but for workers
whose job wants the alias.
"""
