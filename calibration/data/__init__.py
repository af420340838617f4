"""Reading measured runs: the quirks of each dataset live here."""
