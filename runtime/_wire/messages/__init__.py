"""The one schema of both planes. `control`: answered by the control store. `node`: answered by a node agent.
`worker`: between drivers and workers. `base`: what they share. Encoding lives in `codec`.
"""
