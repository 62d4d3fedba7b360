"""`ray.experimental.state`: `util.state` as it was called before."""
