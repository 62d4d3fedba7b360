"""Steps of algorithms that are shared."""
