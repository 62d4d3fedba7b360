"""What helps to repeat a run."""
