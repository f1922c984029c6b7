"""Benchmarks: `python -m bench [a b …]`, or `make bench`. Each compares within one run; none is a test."""
