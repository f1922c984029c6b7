"""The report as one self-contained HTML page: styles and plots inline, no scripts, no network.

Text from others (topic names, client ids, messages) stays text, whatever it contains: jinja2 escapes it, and the page's
Content-Security-Policy forbids scripts and external resources.
"""

from __future__ import annotations

import jinja2
from markupsafe import Markup

from forebay_pipeline.jobs.time_text import instant
from forebay_pipeline.partitions import tables
from forebay_pipeline.report.advised import cards, notes
from forebay_pipeline.report.sections import Known, covered, headlines, sections


def page(known: Known) -> str:
    """The page as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("forebay_pipeline.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # `drawn` does not escape: matplotlib has escaped the text that it draws.
    environment.filters.update(instant=instant, drawn=Markup, number="{:,}".format)
    first_us, last_us = covered(known)
    return environment.get_template("report.html").render(
        first_us=first_us,
        last_us=last_us,
        summary=known.summary,
        cards=cards(known.facts),
        notes=list(notes(known.facts)),
        headlines=list(headlines(known)),
        warnings=[*known.missing, *tables.warnings(known.summary)],
        sections=list(sections(known)),
    )
