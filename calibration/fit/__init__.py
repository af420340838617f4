"""Constants fitted to measurements, with their standard errors."""
