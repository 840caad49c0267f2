"""The callback in the real Trainer of Lightning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import actzip

pytest.importorskip("lightning", reason="lightning is not installed")

import lightning.pytorch as L
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from actzip.integrations.lightning import ActzipCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*([Dd]irectory).*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`:UserWarning"),
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are tiny
    yield
    torch.set_num_threads(threads)


class Digits(L.LightningModule):  # type: ignore[misc]
    """`training_step` calls a part of the module, as most do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.1), nn.Flatten()
        )
        self.head = nn.Linear(8 * 36, 10)

    def training_step(self, batch: Any, index: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self.head(self.net(x)), y)

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        self.log("val_loss", F.cross_entropy(self.head(self.net(x)), y))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def _data() -> Any:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(24, 1, 8, 8, generator=generator)
    y = torch.randint(0, 10, (24,), generator=generator)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)


def _fit(folder: Path, *callbacks: Any, resume: Path | None = None, **arguments: Any) -> Any:
    """Two epochs of three steps, unless the arguments say otherwise."""
    torch.manual_seed(2)
    given: dict[str, Any] = {
        "max_epochs": 2,
        "accelerator": "cpu",
        "log_every_n_steps": 1,
        "logger": CSVLogger(folder, name="log", version=""),
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": any(isinstance(c, ModelCheckpoint) for c in callbacks),
        **arguments,
    }
    trainer = L.Trainer(default_root_dir=folder, callbacks=list(callbacks), **given)
    module = Digits()
    trainer.fit(module, _data(), _data(), ckpt_path=None if resume is None else str(resume))
    return trainer


def _weights(trainer: Any) -> Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.lightning_module.parameters()])


def _saver(folder: Path) -> Any:
    # after each epoch: when it resumes within one, Lightning begins the data anew
    return ModelCheckpoint(folder, "{step}", save_top_k=-1)


def test_the_logger_and_the_callback_metrics_have_the_numbers(tmp_path: Path) -> None:
    callback = ActzipCallback()
    trainer = _fit(tmp_path, callback)
    assert callback.session is not None
    assert callback.session.step == 6
    assert actzip.session_of(trainer.lightning_module) is None  # detached
    stored = callback.session.totals().stored_bytes
    assert trainer.callback_metrics["actzip/saved_bytes"] == stored
    assert trainer.callback_metrics["actzip/ratio"] > 4
    assert 0 < trainer.callback_metrics["actzip/live_peak"] <= stored
    header, *rows = (tmp_path / "log" / "metrics.csv").read_text().splitlines()
    column = header.split(",").index("actzip/saved_bytes")
    values = [float(v) for row in rows if (v := row.split(",")[column])]
    assert len(values) == 6
    assert values[-1] == stored


def test_the_optimizer_is_handed_over_and_accumulated_passes_add_up(tmp_path: Path) -> None:
    callback = ActzipCallback("comet")
    trainer = _fit(tmp_path, callback, accumulate_grad_batches=3)
    assert callback.session is not None
    assert type(callback.session.optimizer) is torch.optim.SGD
    assert trainer.global_step == 2
    assert callback.session.totals().passes == 6  # the net and the head, three times each


@pytest.mark.parametrize(
    ("method", "options"),
    [("actnn", {"interval": 2}), ("comet", {"interval": 1}), ("actnn", {"guard": True})],
    ids=["actnn", "comet", "guarded"],
)
def test_a_resumed_fit_is_the_uninterrupted_one(
    tmp_path: Path, method: str, options: dict[str, Any]
) -> None:
    def fit(resume: Path | None = None) -> Any:
        # the second half has the dropout of the whole run only if each step is seeded
        seeded = _SeededSteps()
        callback = ActzipCallback(method, **options)
        return _fit(tmp_path, seeded, callback, _saver(tmp_path), resume=resume)

    whole = fit()
    rest = fit(tmp_path / "step=3.ckpt")
    assert rest.global_step == 6
    assert torch.equal(_weights(whole), _weights(rest))


class _SeededSteps(L.Callback):  # type: ignore[misc]
    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        torch.manual_seed(trainer.global_step)


def test_a_checkpoint_without_state_warns_and_trains_on(tmp_path: Path) -> None:
    whole = _fit(tmp_path, _SeededSteps(), ActzipCallback(), _saver(tmp_path))
    with pytest.warns(actzip.ActzipWarning, match="goes on from nothing.*same method"):
        _fit(tmp_path, ActzipCallback("fixed"), resume=tmp_path / "step=3.ckpt")
    _fit(tmp_path / "plain", _saver(tmp_path / "plain"))
    with pytest.warns(actzip.ActzipWarning, match="goes on from nothing.*no state of Actzip"):
        _fit(tmp_path, ActzipCallback(), resume=tmp_path / "plain" / "step=3.ckpt")

    held = torch.load(tmp_path / "step=3.ckpt", weights_only=True)
    held["callbacks"].pop("ActzipCallback")
    torch.save(held, tmp_path / "without.ckpt")
    with pytest.warns(actzip.ActzipWarning, match="goes on from nothing"):
        rest = _fit(tmp_path, _SeededSteps(), ActzipCallback(), resume=tmp_path / "without.ckpt")
    assert rest.global_step == 6
    assert not torch.equal(_weights(whole), _weights(rest))  # the state is what makes them equal


def test_a_guarded_session_is_told_the_loss_of_every_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    monkeypatch.setattr(actzip.Session, "watch", lambda self, loss: told.append(float(loss)))
    trainer = _fit(tmp_path, ActzipCallback("actnn", guard=True))
    assert len(told) == 6
    assert all(1 < loss < 10 for loss in told)
    assert trainer.callback_metrics["actzip/guard_level"] == 0


def test_lossless_fits_as_plain_does(tmp_path: Path) -> None:
    exact, plain = _fit(tmp_path, ActzipCallback("lossless")), _fit(tmp_path)
    assert exact.callback_metrics["actzip/ratio"] > 1
    assert torch.equal(_weights(exact), _weights(plain))


def test_an_exception_detaches(tmp_path: Path) -> None:
    class Stop(L.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
            self.module = module
            raise RuntimeError("enough")

    stop, callback = Stop(), ActzipCallback()
    with pytest.raises(RuntimeError, match="enough"):
        _fit(tmp_path, callback, stop)
    assert actzip.session_of(stop.module) is None
