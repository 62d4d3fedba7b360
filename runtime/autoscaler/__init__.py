"""Requests of programs to the autoscaler. They are written to the control store as demand."""
