"""Search spaces: domains, samplers, grids, and the lazy generation of configurations from them.

Pure code: no I/O, no clock, no numpy (a numpy generator is used when the caller hands one in). `runtime.tune.search`
and the public API import it.
"""
