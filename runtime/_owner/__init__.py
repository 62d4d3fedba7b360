"""The owner's side of every driver and worker: submits tasks and actor calls, owns objects, counts references."""
