"""A contact sheet: the first training pictures with their labels, boxes or masks drawn in."""

from __future__ import annotations

import colorsys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from actzip.tasks.data import reading
from actzip.tasks.data.contract import Boxes, Data, DataError
from actzip.tasks.run_folder import replace

COLUMNS, ROWS = 6, 4
_CELL = 160  #: pixels of a picture on the sheet
_CAPTION = 14


def write_sheet(path: Path, data: Data) -> None:
    """Write the sheet as a PNG file."""
    if not data.side:
        raise DataError(f"a contact sheet shows pictures, {data.name} holds texts")
    reading.require()
    from PIL import Image

    indices = torch.linspace(0, len(data.train) - 1, COLUMNS * ROWS).long().unique()
    pictures, targets = data.train.batch(indices)
    rows = -(-len(indices) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * _CELL, rows * (_CELL + _CAPTION)), (255, 255, 255))
    for at, picture in enumerate(pictures):
        corner = (at % COLUMNS * _CELL, at // COLUMNS * (_CELL + _CAPTION))
        sheet.paste(_cell(picture, targets[at], data.classes), corner)
    replace(path, lambda file: sheet.save(file, "PNG"))


def _cell(picture: Tensor, target: Any, classes: tuple[str, ...]) -> Any:
    """One picture with what is known of it."""
    from PIL import Image, ImageDraw

    low, high = picture.min(), picture.max()
    grey = ((picture - low) / (high - low).clamp(min=1e-6) * 255).to(torch.uint8)
    pixels = grey.expand(3, -1, -1).permute(1, 2, 0)
    caption = ""
    if isinstance(target, Tensor) and target.dim() == 2:
        pixels = _tinted(pixels, target)
        caption = ", ".join(classes[i] for i in target.unique().tolist() if i > 0)
    elif isinstance(target, Tensor):
        caption = classes[int(target)]
    shown = Image.fromarray(pixels.contiguous().numpy()).resize((_CELL, _CELL))
    cell = Image.new("RGB", (_CELL, _CELL + _CAPTION), (255, 255, 255))
    cell.paste(shown, (0, 0))
    draw = ImageDraw.Draw(cell)
    if isinstance(target, Boxes):
        scaled = target.corners * (_CELL / picture.shape[-1])
        for box, label in zip(scaled.tolist(), target.labels.tolist(), strict=True):
            draw.rectangle(box, outline=_colour(label))
        caption = ", ".join(dict.fromkeys(classes[i] for i in target.labels.tolist()))
    plain = caption.encode("latin-1", "replace").decode("latin-1")  # Pillow's own font has no more
    draw.text((2, _CELL), plain[:26], fill=(0, 0, 0))
    return cell


def _tinted(pixels: Tensor, labels: Tensor) -> Tensor:
    tinted = pixels.float()
    for label in labels.unique().tolist():
        if label != 0:
            colour = (0, 0, 0) if label < 0 else _colour(label)
            tinted[labels == label] = 0.5 * tinted[labels == label] + 0.5 * torch.tensor(colour)
    return tinted.to(torch.uint8)


def _colour(label: int) -> tuple[int, int, int]:
    """Far apart for labels that are near each other."""
    red, green, blue = colorsys.hsv_to_rgb(label * 0.381966 % 1, 0.9, 0.95)
    return int(255 * red), int(255 * green), int(255 * blue)
