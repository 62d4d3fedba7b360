"""Machines of Google Compute Engine.

`api` is the only module that knows Google's SDK, and imports it when it is first asked; everything else works on plain
JSON of the REST API. `names`, `instances`, `catalog`, `firewall` and `errors` are pure.
"""
