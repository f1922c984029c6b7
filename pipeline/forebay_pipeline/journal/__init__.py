"""The proxy's journal as a DataFrame."""
