"""What belongs to one identity at the brokers: a realm for each."""
