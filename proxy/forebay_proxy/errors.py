"""Errors that only a person can fix."""


class StartError(Exception):
    """The proxy cannot start: a port is in use, an address is not this machine's. The text is one plain line."""
