"""The public names of `runtime.train`, one module for each subject."""
