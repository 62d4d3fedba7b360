"""The runtime for a machine's Python and platform: what it is made for (`target`), which distributions it has
(`requirements`), and their wheels, from the package index (`wheels`). `packing` makes archives of them, which
`launcher.shipping` brings to machines.
"""
