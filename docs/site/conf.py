"""Sphinx's settings for what docs/site/sources.py has put together: `make docs`. Every warning is an error there."""

from __future__ import annotations

from importlib.metadata import version as version_of

project = "Forebay"
author = "The Forebay authors"
release = version = version_of("forebay")

extensions = ["myst_parser"]
# As GitHub does: `## One port` is #one-port.
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"Forebay {version}"
# A page must not ask anybody else for anything.
html_show_sphinx = False
html_copy_source = False
