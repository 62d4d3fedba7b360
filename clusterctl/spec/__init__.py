"""The cluster spec: its one typed definition, reading YAML with positions, checks across keys, JSON Schema.

Pure but for reading the file and the environment. Imported by commands, the launcher and the head.
"""
