"""Groups of settings of an `AlgorithmConfig`: one class per group, with its defaults and its setter methods.

`settings` has what all share: unknown keywords are refused with the nearest name, frozen objects do not change.
"""
