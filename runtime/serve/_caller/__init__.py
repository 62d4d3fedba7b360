"""The caller's side of requests: a queue for each deployment that this process calls, connections to its replicas, and
the exchange of messages of each request. Handles, the ingress and LLM applications use it; it uses no other part of
Serve but the core and the wire.
"""
