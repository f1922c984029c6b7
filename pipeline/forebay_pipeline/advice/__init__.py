"""What to change, and what it would gain, from what a journal shows."""
