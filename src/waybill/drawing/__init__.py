"""Figures of machines, made from their declarations alone: Mermaid text for the documentation, SVG for the web page.

Both show every state and every arrow of `Machine.iter_arrows`, and the same machine always makes the same figure.
"""

from waybill.drawing.mermaid import render_mermaid
from waybill.drawing.svg import render_svg

__all__ = ["render_mermaid", "render_svg"]
