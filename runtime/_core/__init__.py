"""Pure logic: no input or output, no clock, no logging, no threads. Time, randomness and ids come in as arguments.

Imports nothing of the project outside itself; everything else may import it.
"""
