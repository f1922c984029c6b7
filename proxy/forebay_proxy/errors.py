"""What goes wrong in a way that a person must mend."""


class StartError(Exception):
    """The proxy cannot start: a port is in use, an address is not this machine's. The text is one line for a person."""
