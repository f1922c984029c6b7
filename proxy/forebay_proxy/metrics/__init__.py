"""What is counted, who the clients are, and the admin endpoint that shows both."""
