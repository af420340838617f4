"""Measured runs as records in files: one schema, read into model, cluster, framework and plan."""

from costmodel.catalogue.records.reading import Refused, load_runs, read_records
from costmodel.catalogue.records.runs import run_of

__all__ = ["Refused", "load_runs", "read_records", "run_of"]
