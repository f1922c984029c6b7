"""PySpark jobs that read the proxy's journal and the topics themselves. The proxy never imports them."""
