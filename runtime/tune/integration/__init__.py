"""Callbacks of other libraries that report to the trial which runs them. Import the module of the library."""
