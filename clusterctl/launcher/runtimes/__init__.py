"""What runs on the machines: our engine, or Ray itself. `protocol` says what the launcher needs of a runtime, `chosen`
chooses the one of a spec. What a spec may ask of it is in `clusterctl.spec.definition`.
"""
