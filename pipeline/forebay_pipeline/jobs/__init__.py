"""What all jobs share: options, the Spark session, streaming queries, output."""
