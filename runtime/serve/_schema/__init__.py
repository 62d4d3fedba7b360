"""The schemas that `runtime.serve.schema` shows: of configurations (`configs`) and of what is served (`details`).

They take time to import, so `runtime.serve.schema` imports them on first use. They use the options in
`runtime.serve.config`, the checks in `runtime.serve.deployment` and the states in `_core`.
"""
