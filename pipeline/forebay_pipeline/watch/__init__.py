"""The job `watch`: loss and latency of each topic and minute, while the journal grows."""
