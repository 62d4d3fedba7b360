"""What an experiment decides, without clock, threads and I/O."""
