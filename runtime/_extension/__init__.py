"""The libraries' door into the engine: what graphs, collectives and every library on top of the core use of it besides
the public API. They import nothing else that is private (checked).
"""
