"""What a run of training decides, without I/O."""
