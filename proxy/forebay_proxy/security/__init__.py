"""What proves who is at the other end, and who we are: TLS contexts, and what SASL presents to brokers."""
