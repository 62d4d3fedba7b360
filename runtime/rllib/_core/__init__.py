"""The pure part of RLlib: arrays of experience and what is computed from them. NumPy only: no torch, no engine."""
