"""The tasks by name."""

from __future__ import annotations

from actzip.tasks.classify import Classify
from actzip.tasks.detect import Detect
from actzip.tasks.lm import LanguageModel
from actzip.tasks.segment import Segment
from actzip.tasks.task import Task
from actzip.tasks.text import Text

TASKS: dict[str, Task] = {
    task.name: task for task in (Classify(), Detect(), Segment(), Text(), LanguageModel())
}
