"""The jobs `partitions` and `runaways`: who got what, and whether a partition runs away."""
