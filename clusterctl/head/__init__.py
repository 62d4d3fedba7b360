"""What runs on the head's machine: `python -m clusterctl.head` starts the control store and the head's node
agent as processes of their own and keeps them alive; it holds the autoscaler with its provider, the jobs and
the HTTP API.

`clusterctl start --head` starts it; nothing else imports it.
"""
