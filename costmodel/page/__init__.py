"""What if: a question whose answer can be dragged, as one HTML file that needs no server, or as sliders in a notebook."""

from costmodel.page.onefile import WhatIf, whatif

__all__ = ["WhatIf", "whatif"]
