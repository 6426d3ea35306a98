"""What tests need to know of a drawing: its texts, its boxes, and where they lie."""

import xml.etree.ElementTree as ET
from typing import NamedTuple

from course_lib.notebooks.drawing import Drawing, text_width

SVG = "{http://www.w3.org/2000/svg}"
ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}


class Text(NamedTuple):
    text: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Text") -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def root(drawing: Drawing) -> ET.Element:
    return ET.fromstring(drawing.svg)


def texts(drawing: Drawing) -> list[Text]:
    """The texts with their estimated places; the height is that of the letters."""
    found = []
    for element in root(drawing).iter(f"{SVG}text"):
        size, x, base = (float(element.attrib[name]) for name in ("font-size", "x", "y"))
        text = element.text or ""
        width = text_width(text, int(size), "font-weight" in element.attrib)
        left = x - width * ANCHORS[element.attrib["text-anchor"]]
        found.append(Text(text, left, base - 0.7 * size, left + width, base + 0.1 * size))
    return found


def fill_behind(drawing: Drawing, label: str) -> str:
    """The fill of the innermost box that holds a text."""
    text = next(text for text in texts(drawing) if text.text == label)
    boxes = []
    for element in list(root(drawing).iter(f"{SVG}rect"))[1:]:
        x, y, width, height = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
        if x <= text.left + 4 and text.right - 4 <= x + width and y <= text.top + 1 and text.bottom - 1 <= y + height:
            boxes.append((width * height, element.attrib["fill"]))
    return min(boxes)[1]
