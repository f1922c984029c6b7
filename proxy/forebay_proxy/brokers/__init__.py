"""What the proxy knows of the brokers, and its own connections to them."""
