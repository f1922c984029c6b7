"""The settings: what there is, which values are allowed, where they are read from."""
