"""The telemetry journal: rows of what the proxy did, and the files they go to."""
