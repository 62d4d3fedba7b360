"""A pretended Google Compute Engine: the part of its REST API that the provider uses, on a real socket, with faults on
demand and, if wished, a real host for each of its running instances. `server.Cloud` is the door.
"""
