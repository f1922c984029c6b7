"""Processes from start to exit: one that does everything, or a supervisor and its workers."""
