"""What can be decided without clocks, sockets or processes."""
