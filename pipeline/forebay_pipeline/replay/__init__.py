"""The job `replay`: simulates recorded traffic with other settings."""
