"""Figures of machines, made from nothing but their tables: Mermaid text for pages of documentation, SVG for the web
page.

Both show every state and every arrow of `Machine.arrows`, and the same table always makes the same figure.
"""

from waybill.drawing.mermaid import mermaid
from waybill.drawing.svg import svg

__all__ = ["mermaid", "svg"]
