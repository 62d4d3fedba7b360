"""Data sources and sinks: one module per format. They know paths and file systems, and nothing of plans or tasks."""
