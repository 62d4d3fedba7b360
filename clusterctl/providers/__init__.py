"""One package per platform, each behind `autoscaler.provider.Provider`. Platform SDKs are imported lazily, only there.

`registry.make` makes the provider of a spec, for the launcher and for the head's autoscaler.
`protocol` says what they may ask of it.
"""
