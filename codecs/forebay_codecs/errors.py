"""What decoders raise when bytes break the protocol.

A decoder does not know who sent the bytes: it raises Malformed, and its caller knows whom to blame.
"""


class Malformed(ValueError):
    """The bytes break the protocol: a length that overruns, a count that lies, trailing bytes where none belong."""
