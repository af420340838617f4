"""The what-if page: a question at the left, its answer on top, sliders below, and a link that is the whole question."""
