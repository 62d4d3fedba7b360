"""Names that programs take from `ray.experimental`, which have moved since."""
