"""The produce path: from a client's Produce request to the brokers' answers and back."""
