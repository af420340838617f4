"""From microbenchmark to fitted constant to published error: ``python -m calibration measure | fit | validate``."""
