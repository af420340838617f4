"""Predictions of other tools beside the library's, of the same runs, each by a script that asks the tool itself."""
