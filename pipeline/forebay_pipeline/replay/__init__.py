"""The job `replay`: recorded traffic, simulated with other settings."""
