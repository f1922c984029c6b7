"""The jobs `partitions` and `runaways`: load and latency by partition, and partitions that run away."""
