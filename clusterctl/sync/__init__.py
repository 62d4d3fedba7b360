"""Files on their way between two machines: one manifest decides what travels, and only what changed does.

    rules -> manifest --(look: what is there?)--> changes -> sender ==bytes==> receiver

`receiver`, and for the way back `manifest` and `sender`, also run on the other machine: their text is sent along
(`remote`). So these need Python's standard library only. Everything goes through `Shell.run`.
"""
