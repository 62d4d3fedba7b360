"""A replica: the actor that runs the code of one deployment and answers its callers (`runtime.serve._wire.messages`).

Only the controller makes one. Requests come by sockets of the replica's own event loop, never by calls of the actor.
"""
