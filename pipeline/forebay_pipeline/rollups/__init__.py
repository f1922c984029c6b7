"""Rollups: what a report needs to know of each day, kept for good, so that one of months need not read its rows."""
