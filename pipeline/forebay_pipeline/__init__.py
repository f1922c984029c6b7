"""PySpark jobs over the proxy's journal and over the topics themselves. Never imported by the proxy."""
