"""Shared by all jobs: options, the Spark session, streaming queries, output."""
