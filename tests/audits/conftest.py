"""Scripts that are traced are no tests, and need what they train with."""

collect_ignore_glob = ["traced/*"]
