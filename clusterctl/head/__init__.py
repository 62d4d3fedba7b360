"""What runs on the head's machine: `python -m clusterctl.head` starts the control store and the head's node
agent as processes of their own and keeps them alive; it holds the autoscaler with its provider, the jobs and
the HTTP API, and sets up the workers. Beside it is what runs on workers' machines (`join`, `worker`).

`clusterctl start --head` starts it.
"""
