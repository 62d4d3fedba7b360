"""Processes, files and imports: helpers that know the operating system and nothing of the engine."""
