"""Engines: what runs a language model inside a replica. `interface` says what a server asks of one; the engines are in
modules of their own and import their libraries when they start. Only `runtime.serve.llm` imports this package."""
