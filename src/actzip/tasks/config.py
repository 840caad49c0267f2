"""Everything a training run needs, in one frozen value; a wrong one is refused when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from actzip import accelerator, methods
from actzip.tasks.catalogue import TASKS
from actzip.tasks.data import task_of
from actzip.tasks.task import Recipe, Task

#: ways to train that need no session: PyTorch as it is, recomputing blocks, autocast
BASELINES = ("plain", "checkpoint", "bf16")
OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("onecycle", "cosine", "constant")
PRECISIONS = ("fp32", "bf16")
_LORA_RATE = 10  #: times that of all weights: the best rates of LoRA and of full training differ so
_SEEDS = 2**62  #: twice a seed is a seed of PyTorch, which has 64 bits
_THREADS = 1024  #: a hundred million ended in a crash without a word


@dataclass(frozen=True)
class Config:
    """A training run; the same config gives the same run. `make` fills in a task's defaults."""

    task: str
    data: str  #: a built-in name or a path
    model: str
    method: str
    epochs: int
    batch: int
    optimizer: str
    rate: float
    decay: float
    schedule: str
    clip: float  #: largest norm of the gradient; 0 leaves it as it is
    options: Mapping[str, Any] = field(default_factory=dict)  #: of the method
    sizes: Mapping[str, Any] = field(default_factory=dict)  #: of the model
    accumulate: int = 1  #: parts that a batch is cut into, one backward each
    precision: str = "fp32"
    channels_last: bool = False  #: the layout of pictures in which oneDNN is fastest
    test_every: int = 1  #: epochs between tests; the last epoch always ends with one
    seed: int = 0  #: of weights, order, augmentation and rounding
    side: int | None = None  #: of pictures; None leaves the data's own
    length: int | None = None  #: of texts in tokens; None leaves the data's own
    limit: int | None = None  #: most examples of a split; None takes all
    threads: int | None = None  #: None leaves PyTorch's own choice
    void: int | None = None  #: value of a mask's pixels that do not count; None: 255
    text_column: str | None = None  #: of a table; None: guessed
    label_column: str | None = None
    strict: bool = False  #: refuse data in which anything is wrong
    device: str = "cpu"  #: where it runs: cpu, cuda, mps, xpu, or one of several, as cuda:1

    def __post_init__(self) -> None:
        for name, allowed in (
            ("task", tuple(TASKS)),
            ("method", (*BASELINES, *methods.METHODS)),
            ("optimizer", OPTIMIZERS),
            ("schedule", SCHEDULES),
            ("precision", PRECISIONS),
        ):
            _one_of(name, getattr(self, name), allowed)
        _one_of("device", self.device.partition(":")[0], accelerator.TYPES)
        _one_of(f"model of the task {self.task!r}", self.model, tuple(self.kind.models))
        for name in (
            "epochs",
            "batch",
            "accumulate",
            "test_every",
            "side",
            "length",
            "limit",
            "threads",
        ):
            _at_least(name, getattr(self, name), 1)
        _at_least("seed", self.seed, 0)
        for name, most in (("seed", _SEEDS), ("threads", _THREADS)):
            if (getattr(self, name) or 0) > most:
                raise ValueError(f"{name} must be at most {most}, got {getattr(self, name)}")
        for name, least in (("rate", 1e-12), ("decay", 0.0), ("clip", 0.0)):
            value = getattr(self, name)
            if not least <= value < float("inf"):
                raise ValueError(f"{name} must be a number of at least {least:g}, got {value!r}")
        self._check_parts()

    def _check_parts(self) -> None:
        if self.batch % self.accumulate:
            raise ValueError(
                f"a batch of {self.batch} cannot be cut into accumulate={self.accumulate} equal "
                "parts; choose a divisor of the batch"
            )
        known = self.kind.models[self.model].sizes
        for name, value in self.sizes.items():
            _one_of(f"size of the model {self.model!r}", name, tuple(known))
            _check_size(f"size {name} of the model {self.model!r}", value, known[name])
        for name, value in self.options.items():
            if not isinstance(value, int | float | str | None):
                raise ValueError(
                    f"options are numbers and words, so that a saved run can hold them; {name} "
                    f"is {value!r}"
                )
        if self.method in BASELINES:
            if self.options:
                given = ", ".join(self.options)
                raise ValueError(f"the method {self.method!r} takes no options, got {given}")
        else:
            try:
                methods.resolve(self.method, dict(self.options))  # says what is wrong with them
            except TypeError as error:  # a word where a number belongs
                given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
                raise ValueError(f"the method {self.method!r} with {given}: {error}") from error

    @property
    def kind(self) -> Task:
        return TASKS[self.task]

    @property
    def autocast(self) -> bool:
        """Whether forward passes run in bf16 where PyTorch thinks it safe."""
        return self.precision == "bf16" or self.method == "bf16"

    def plain(self) -> dict[str, Any]:
        """As JSON-ready values; `Config(**values)` is this config again."""
        return asdict(self)


def make(task: str | None = None, **given: Any) -> Config:
    """A config in which everything not given (or None) is the task's or the model's default.

    Without a task it is the one that the data are for, else classify.
    """
    given = {name: value for name, value in given.items() if value is not None}
    unknown = set(given) - {each.name for each in fields(Config)}
    if unknown:
        raise ValueError(f"a config has no {', '.join(sorted(unknown))}")
    if task is None:
        task = task_of(given["data"]) if "data" in given else "classify"
    _one_of("task", task, tuple(TASKS))
    kind = TASKS[task]
    model = given.get("model", kind.model)
    _one_of(f"model of the task {task!r}", model, tuple(kind.models))
    defaults = {"data": kind.data, "model": model, "method": "plain"}
    recipe = kind.models[model].recipe
    return Config(task=task, **{**defaults, **_advised(recipe, given), **given})


def _advised(recipe: Recipe, given: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe; its rate and decay belong to its optimizer, another one has its own."""
    advised = asdict(recipe)
    optimizer = given.get("optimizer", recipe.optimizer)
    if optimizer != recipe.optimizer:
        rate, decay = (0.1, 5e-4) if optimizer == "sgd" else (1e-3, 0.01)
        advised.update(rate=rate, decay=decay)
    if given.get("sizes", {}).get("lora"):
        advised["rate"] *= _LORA_RATE
    return advised


def _one_of(what: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {what}: {value!r}; allowed are {', '.join(allowed)}")


def read_config(state: Mapping[str, Any]) -> Config:
    """The config in a saved state; a ValueError when it is of another actzip."""
    try:
        return Config(**state["config"])
    except (TypeError, KeyError) as error:
        raise ValueError(f"the saved state is of another actzip: {error}") from error


def _check_size(what: str, value: Any, default: Any) -> None:
    """Whole numbers where the default is one, else a share such as that of dropout."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, int):
        fits, kind = isinstance(value, int) and number and value >= 1, "a whole number, 1 or more"
    else:
        fits, kind = number and 0 <= value < 1, "a number from 0 to below 1"
    if not fits:
        raise ValueError(f"{what} must be {kind}, got {value!r}; the default is {default!r}")


def _at_least(name: str, value: Any, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
