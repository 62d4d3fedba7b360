"""How callers of a deployment and its replicas talk: messages over a stream socket, one connection for each pair."""
