"""`ray.air`: only the import paths of its loggers, which are those of `tune.logger`."""
