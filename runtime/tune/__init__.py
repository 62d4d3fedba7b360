"""Studies of many trials, with Ray Tune's API."""
