"""Figures of answers, as Plotly has them, each returned and not shown yet."""
