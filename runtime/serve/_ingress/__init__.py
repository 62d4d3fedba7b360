"""The ingress of a node: takes HTTP, WebSocket and gRPC requests and hands them to replicas by `runtime.serve._caller`.

`routes`, `answers` and `options` decide without I/O; `actor` alone knows the engine. Only the controller creates it.
"""
