"""What a decoder says when the bytes are not what the protocol says they are.

A decoder does not know who sent the bytes: it raises Malformed, and whoever fed it names the guilty side.
"""


class Malformed(ValueError):
    """The bytes break the protocol: a length that overruns, a count that lies, a tail that should not be there."""


class UpstreamProtocolError(Exception):
    """A broker broke the protocol. Only the connection to it is closed."""
