"""A user's pictures for segment: each with a mask of the same name, or nearly the same.

A mask holds a class number per pixel, 0 the background; one value, 255 unless another is named,
does not count. Masks of nothing but 0 and 255 show one class. Names of the classes, background
first, may be given in ``classes.txt``, one per line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from actzip.tasks.data import dense, layout, reading
from actzip.tasks.data.contract import IGNORE, Data, DataError, Request
from actzip.tasks.data.dense import Scene
from actzip.tasks.data.layout import Found
from actzip.tasks.data.lists import divided, published
from actzip.tasks.data.pictures import Scale
from actzip.tasks.data.problems import Problems

SIDE = 128  #: of the pictures, unless another is asked for
VOID = 255  #: the mask value that does not count, unless another is named
#: words that tell a mask's name from its picture's
_WORDS = {
    *layout.MASKS,
    *layout.IMAGES,
    "seg",
    "l",
    "labelids",
    "gtfine",
    "leftimg",
    "bit",
    "trimap",
}
EXPECTED = """\
  images/ + masks/ (or labels/, annotations/), with or without train/ test/ in or around them
  train/ + trainannot/, test/ + testannot/ (or train_masks/)
  JPEGImages/ + SegmentationClass/ [+ ImageSets/Segmentation/]   Pascal VOC
  one folder with a.jpg and a_mask.png"""

_Pair = tuple[Path, Path]


@dataclass(frozen=True, eq=False)
class Masked:
    """Pictures of one size with a label per pixel, as bytes."""

    images: Tensor
    labels: Tensor
    void: int | None  #: the label that does not count; None: all count

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Scene:
        labels = self.labels[index].long()
        if self.void is not None:
            labels.masked_fill_(labels == self.void, IGNORE)
        return Scene(self.images[index], labels=labels)


def find(root: Path, problems: Problems) -> Found[_Pair] | None:
    """The pictures and their masks; None when no layout fits."""
    if not root.is_dir():
        return None
    root = layout.unwrapped(root)
    years = layout.years(root, ("segmentationclass",))
    found = [one for each in years or [root] if (one := _year(each, problems))]
    return layout.joined(found)


def _year(root: Path, problems: Problems) -> Found[_Pair] | None:
    images, masks = layout.named(root, layout.IMAGES), layout.named(root, layout.MASKS)
    if images is not None and masks is not None:
        return _beside(root, images, masks, problems)
    return _by_split(root, problems) or _together(root, problems)


def _beside(root: Path, images: Path, masks: Path, problems: Problems) -> Found[_Pair] | None:
    """A folder of pictures and one of masks; splits may be inside them, or in lists."""
    how, others = f"{images.name}/ + {masks.name}/", layout.splits(masks)
    parts = {
        split: _pairs(folder, others[split], problems)
        for split, folder in layout.splits(images).items()
        if split in others
    }
    if parts.get("train"):
        return layout.chosen(parts, f"{how}, split inside them")
    aside = Problems()
    pairs = _pairs(images, masks, aside)
    stems = [picture.stem for picture, _ in pairs]
    lists = published(root, "Segmentation", set(stems), problems)
    if lists is not None:
        return Found(f"{how}, split by {lists.source}", *divided(pairs, stems, lists))
    problems.found += aside.found
    return Found(f"{how}, no split of their own", pairs) if pairs else None


def _by_split(root: Path, problems: Problems) -> Found[_Pair] | None:
    """train/ with trainannot/, or a folder for each split with pictures and masks inside."""
    masks: dict[str, Path] = {}
    images: dict[str, Path] = {}
    for folder in layout.folders(root):
        split, rest = layout.part(folder.name)
        if split is not None and (rest in layout.MASKS or rest in layout.IMAGES or not rest):
            (masks if rest in layout.MASKS else images)[split] = folder
    parts: dict[str, list[_Pair]] = {}
    for split, folder in images.items():
        inner = layout.named(folder, layout.IMAGES), layout.named(folder, layout.MASKS)
        if split in masks:
            parts[split] = _pairs(folder, masks[split], problems)
        elif inner[0] is not None and inner[1] is not None:
            parts[split] = _pairs(inner[0], inner[1], problems)
    if not parts.get("train"):
        return None
    names = [path.name for path in (images["train"], masks.get("train")) if path is not None]
    how = "/ + ".join(names) + "/" if len(names) > 1 else "pictures and masks inside each split"
    return layout.chosen(parts, how)


def _together(root: Path, problems: Problems) -> Found[_Pair] | None:
    """Pictures and masks in the same folder: this one, one for each split, or some others."""
    how = "pictures and masks in the same folder"
    splits = layout.splits(root)
    parts = {split: _told_apart(folder, problems) for split, folder in splits.items()}
    if parts.get("train"):
        return layout.chosen(parts, f"{how}, one for each split")
    pairs = [pair for each in (root, *layout.folders(root)) for pair in _told_apart(each, problems)]
    return Found(how, pairs) if pairs else None


def _told_apart(folder: Path, problems: Problems) -> list[_Pair]:
    """Pairs by a word in the masks' names; none where that word is in few names by chance."""
    listed = reading.listed(folder)
    masks = [path for path in listed if _is_mask(path)]
    pictures = [path for path in listed if not _is_mask(path)]
    return _matched(pictures, masks, problems) if 2 * len(masks) > len(pictures) else []


def _is_mask(path: Path) -> bool:
    return bool({"mask", "masks", "gt", "seg", "label"} & set(_words(path.stem)))


def _pairs(images: Path, masks: Path, problems: Problems) -> list[_Pair]:
    found = reading.listed(masks)
    if not found:  # annotations/trimaps/ beside annotations/xmls/
        held = [each for each in layout.folders(masks) if reading.listed(each)]
        found = reading.listed(held[0]) if len(held) == 1 else []
    return _matched(reading.listed(images), found, problems) if found else []


def _matched(pictures: list[Path], masks: list[Path], problems: Problems) -> list[_Pair]:
    """Pairs of the same name, or of the same but for a word that says what it is."""
    same = {path.stem: path for path in masks}
    alike = {_key(path.stem): path for path in masks}
    pairs = []
    for picture in pictures:
        mask = same.get(picture.stem) or alike.get(_key(picture.stem))
        if mask is None:
            problems.note(f"{picture} has no mask of its name in {masks[0].parent}")
        else:
            pairs.append((picture, mask))
    return pairs


def _words(stem: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", stem.lower()) if word]


def _key(stem: str) -> str:
    words = [word for word in _words(stem) if word.rstrip("0123456789") not in _WORDS]
    return "_".join(words) or stem


def read(request: Request) -> Data:
    """All pictures and masks decoded and stretched to a square."""
    root, problems = Path(request.name), Problems()
    found = find(root, problems)
    if found is None:
        raise layout.unknown(root, request.task, EXPECTED, problems)
    side = request.side or SIDE
    void = VOID if request.void is None else request.void
    train, test = (_masked(part, side, problems) for part in layout.divide(found, request))
    layout.nonempty(train, "training", root, problems)
    how = found.layout
    if request.void is None and _is_white_on_black(train):  # nothing to leave out
        how += "; masks are black and white: class 1 is white"
        for part in (train, test):
            for _, _, labels in part:
                labels.copy_(labels > VOID // 2)
    values = torch.stack([labels for _, _, labels in train]).unique().tolist()
    classes = _classes(root, [value for value in values if value != void])
    whole = []
    for name, part in (("training", train), ("test", test)):
        kept = [each for each in part if _in_range(each, len(classes), void, problems)]
        layout.nonempty(kept, name, root, problems)
        images = torch.stack([image for _, image, _ in kept])
        whole.append(Masked(images, torch.stack([labels for _, _, labels in kept]), void))
    scale, wrong = Scale.of(whole[0].images), problems.end(request.name, request.strict)
    return dense.data(request, whole[0], whole[1], scale, True, classes, side, how, wrong)


_Decoded = tuple[Path, Tensor, Tensor]
_GREY = 0.1  #: of the pixels: the smooth edges of white shapes on black
_HIGH = 64  #: greys above the class numbers of such masks, and white
_NEAR = 32  #: greys by which JPEG changes black and white


def _is_white_on_black(part: list[_Decoded]) -> bool:
    """Whether masks hold 0 and 255, and else only few greys, not only low ones."""
    counts = torch.stack([labels for _, _, labels in part]).flatten().bincount(minlength=256)
    near = _NEAR if all(mask.suffix.lower() in (".jpg", ".jpeg") for mask, _, _ in part) else 0
    black, white = int(counts[: near + 1].sum()), int(counts[VOID - near :].sum())
    grey = int(counts.sum()) - black - white
    if not (black and white):
        return False
    smooth = grey <= min(white, _GREY * int(counts.sum())) and bool(counts[_HIGH:VOID].any())
    return not grey or smooth


def _masked(pairs: list[_Pair], side: int, problems: Problems) -> list[_Decoded]:
    """The mask's path, the picture and the labels of each pair that can be read."""
    pictures, masks = [p for p, _ in pairs], [m for _, m in pairs]
    first, second = (reading.sizes(paths, Problems()) for paths in (pictures, masks))
    images = reading.pictures(pictures, side, problems)
    labels = reading.masks(masks, side, problems)
    kept = []
    for (picture, mask), own, other, image, label in zip(
        pairs, first, second, images, labels, strict=True
    ):
        if image is None or label is None:
            continue
        if own != other and own is not None and other is not None:
            problems.note(
                f"{mask} has {other[0]}×{other[1]} pixels, but its picture {picture.name} "
                f"{own[0]}×{own[1]}"
            )
            continue
        kept.append((mask, image, label))
    return kept


def _classes(root: Path, values: list[int]) -> tuple[str, ...]:
    """From classes.txt, else a number for each label up to the largest of the training masks."""
    inner = layout.unwrapped(root)
    named = next((p / "classes.txt" for p in (root, inner) if (p / "classes.txt").is_file()), None)
    if named is not None:
        lines = named.read_text("utf-8").splitlines()
        names = tuple(line.strip() for line in lines if line.strip())
    else:
        most = max(values, default=0)
        names = ("background", *(f"class {number}" for number in range(1, most + 1)))
    if len(names) < 2:
        raise DataError(
            f"{root} has no class beside the background; a mask holds a class number per pixel "
            "(1, 2, …), and 255 or --void marks what does not count"
        )
    return names


def _in_range(each: _Decoded, classes: int, void: int, problems: Problems) -> bool:
    mask, _, labels = each
    wrong = labels[(labels >= classes) & (labels != void)]
    if len(wrong):
        problems.note(
            f"{mask}: the label {int(wrong[0])} is out of range; "
            f"there are {classes} classes, so labels go from 0 to {classes - 1}"
        )
    return not len(wrong)
