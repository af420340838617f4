"""A step played out: every transaction, every event of a pipeline, every link."""
