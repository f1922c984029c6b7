"""Client connections: who is let in, which way each request goes, responses in their order."""
