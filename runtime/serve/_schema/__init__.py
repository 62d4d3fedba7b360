"""The schemas that `runtime.serve.schema` shows: of configurations (`configs`) and of what is served (`details`).

They take time to import, so `runtime.serve.schema` imports them on first use. They import the options in
`runtime.serve.config` only.
"""
