"""The processes of a run of training: its driver, its controller and its workers."""
