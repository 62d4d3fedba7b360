"""The one schema of both planes. `control`, and `groups` for placement groups: answered by the control store. `node`:
answered by a node agent. `worker`: between drivers and workers. `base`: what they share. Encoding lives in `codec`.
"""
