"""The proxy: listeners, connections, the produce path's I/O, and the command.

Five nouns. A *listener* stands for a broker and accepts *client connections*; a *request router* decides for each
request frame whether it is cut through on the client's own *opaque connection* to that broker, answered here, or goes
the produce path: handler → accumulator → *sender* (one a broker) → completion.
"""

import sys

# structlog imports rich where it is installed (for `top`): a third of a process's start, for what nothing here uses.
if "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # as if it were not installed
    import structlog

    del sys.modules["rich"], structlog

__version__ = "0.1.0"
