"""`ray.air.integrations`."""
