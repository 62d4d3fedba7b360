"""`ray.experimental.state`: the former name of `util.state`."""
