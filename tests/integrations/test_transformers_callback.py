"""The callback in the real Trainer: logs, checkpoints, guard, and what else a run may have."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import actzip

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="the Trainer of transformers needs accelerate")

import transformers
from tiny_trainer import gpt, trainer, weights

from actzip.integrations.transformers import ActzipCallback

KEYS = {"actzip/saved_bytes", "actzip/ratio", "actzip/noise", "actzip/live_peak"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are tiny
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity_warning()
    torch.set_num_threads(threads)


def _losses(run: Any) -> list[dict[str, float]]:
    return [entry for entry in run.state.log_history if "loss" in entry]


class _Late(transformers.TrainerCallback):
    """Logs what a logger's callback is given."""

    def __init__(self) -> None:
        self.logs: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.logs.append(dict(kwargs["logs"]))


def test_every_loss_in_the_history_has_the_four_numbers(tmp_path: Path) -> None:
    callback, early = ActzipCallback("actnn"), _Late()
    run = trainer(tmp_path, early, callback, eval_strategy="steps", eval_steps=2)
    run.train()
    entries = _losses(run)
    assert len(entries) == 3
    for entry in entries:
        assert entry.keys() >= KEYS
        assert entry["actzip/ratio"] > 4  # 2 bits of 32, and masks
        assert 0 < entry["actzip/noise"] < 1
        assert 0 < entry["actzip/live_peak"] <= entry["actzip/saved_bytes"]
    given = [logs for logs in early.logs if "loss" in logs]
    assert [logs["actzip/ratio"] for logs in given] == [e["actzip/ratio"] for e in entries]
    evaluated = [entry for entry in run.state.log_history if "eval_loss" in entry]
    assert len(evaluated) == 3
    assert not any(KEYS & entry.keys() for entry in evaluated)


def test_tensorboard_has_the_four_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "tb"))
    run = trainer(tmp_path, ActzipCallback(), max_steps=2, report_to=["tensorboard"])
    run.train()
    found = EventAccumulator(str(tmp_path / "tb"))
    found.Reload()
    assert {f"train/{key}" for key in KEYS} <= set(found.Tags()["scalars"])
    (event,) = found.Scalars("train/actzip/ratio")
    assert event.value == pytest.approx(_losses(run)[0]["actzip/ratio"])


def test_training_ends_with_the_model_and_the_trainer_as_they_were(tmp_path: Path) -> None:
    callback = ActzipCallback()
    run = trainer(tmp_path, callback, max_steps=1)
    run.train()
    assert actzip.session_of(run.model) is None
    assert not {"log", "training_step"} & vars(run).keys()
    assert callback.session is not None
    assert callback.session.totals().ratio > 4  # the numbers can still be read
    run.train()  # and again
    assert callback.session.step == 1
    copied = copy.deepcopy(callback)
    assert copied.session is None
    assert copied.method == callback.method


def test_measuring_the_noise_does_not_change_the_run(tmp_path: Path) -> None:
    runs = []
    for every in (0, 1):
        runs.append(trainer(tmp_path, ActzipCallback(noise_every=every), max_steps=4))
        runs[-1].train()
    assert "actzip/noise" not in _losses(runs[0])[-1]
    assert "actzip/noise" in _losses(runs[1])[-1]
    assert torch.equal(weights(runs[0]), weights(runs[1]))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # Dynamo asks
@pytest.mark.parametrize(
    ("method", "options", "compiled"),
    [
        ("actnn", {"interval": 2}, False),
        ("acgc", {}, False),
        ("auto", {}, False),
        ("comet", {"interval": 1, "scope": "all"}, False),
        ("actnn", {"guard": True}, False),
        ("actnn", {}, True),
    ],
    ids=["actnn", "acgc", "auto", "comet", "guarded", "compiled"],
)
def test_a_resumed_run_is_the_uninterrupted_one(
    tmp_path: Path, method: str, options: dict[str, Any], compiled: bool
) -> None:
    def run(folder: Path, resume: Path | None = None) -> Any:
        torch._dynamo.reset()
        made = trainer(
            folder,
            ActzipCallback(method, noise_every=0, **options),
            save_strategy="steps",
            save_steps=4,
            torch_compile=compiled,
            torch_compile_backend="aot_eager" if compiled else None,
        )
        made.train(resume_from_checkpoint=None if resume is None else str(resume))
        return made

    whole = run(tmp_path / "whole")
    rest = run(tmp_path / "rest", resume=tmp_path / "whole" / "checkpoint-4")
    assert rest.state.global_step == 6
    assert torch.equal(weights(whole), weights(rest))
    assert _losses(rest)[-1]["loss"] == _losses(whole)[-1]["loss"]


def test_a_checkpoint_without_state_warns_and_trains_on(tmp_path: Path) -> None:
    def made(method: str = "actnn") -> Any:
        callback = ActzipCallback(method, noise_every=0)
        return trainer(tmp_path, callback, save_strategy="steps", save_steps=4)

    whole = made()
    whole.train()
    folder = tmp_path / "checkpoint-4"
    with pytest.warns(actzip.ActzipWarning, match="goes on from nothing.*same method"):
        made("fixed").train(resume_from_checkpoint=str(folder))
    (folder / "actzip_state.pt").unlink()
    rest = made()
    with pytest.warns(actzip.ActzipWarning, match="goes on from nothing.*there is no"):
        rest.train(resume_from_checkpoint=str(folder))
    assert rest.state.global_step == 6
    assert not torch.equal(weights(whole), weights(rest))  # the state is what makes them equal


def test_the_optimizer_is_handed_over_without_its_wrapper(tmp_path: Path) -> None:
    callback = ActzipCallback("comet")
    run = trainer(tmp_path, callback, max_steps=1)
    run.train()
    assert callback.session is not None
    assert type(callback.session.optimizer) is torch.optim.AdamW
    assert run.optimizer is not callback.session.optimizer


def test_the_passes_of_an_accumulated_step_add_up(tmp_path: Path) -> None:
    callback = ActzipCallback(noise_every=0)
    arguments = {"gradient_accumulation_steps": 3, "per_device_train_batch_size": 4}
    run = trainer(tmp_path, callback, max_steps=2, logging_steps=1, **arguments)
    run.train()
    assert callback.session is not None
    assert callback.session.totals().passes == 3
    assert callback.session.step == 6
    assert _losses(run)[-1]["actzip/saved_bytes"] == callback.session.totals().stored_bytes


def test_a_guarded_session_is_told_the_loss_of_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    monkeypatch.setattr(actzip.Session, "watch", lambda self, loss: told.append(float(loss)))
    run = trainer(
        tmp_path,
        ActzipCallback(guard=True),
        gradient_accumulation_steps=2,
        per_device_train_batch_size=4,
        logging_steps=1,
        max_steps=3,
    )
    run.train()
    assert told == pytest.approx([entry["loss"] for entry in _losses(run)], rel=1e-5)
    assert all("actzip/guard_level" in entry for entry in _losses(run))


def test_training_again_after_an_interruption_begins_anew(tmp_path: Path) -> None:
    class Stop(transformers.TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            raise KeyboardInterrupt

    callback, stop = ActzipCallback(noise_every=0), Stop()
    run = trainer(tmp_path, callback, stop, max_steps=2)
    with pytest.raises(KeyboardInterrupt):
        run.train()
    run.remove_callback(stop)
    run.train()
    assert callback.session is not None
    assert callback.session.step == 2
    assert len(_losses(run)) == 1
    assert not {"log", "training_step"} & vars(run).keys()


class _Fails(transformers.TrainerCallback):
    """Raises where it is told to; in a forward pass if no event is named."""

    def __init__(self, event: str, error: type[BaseException]) -> None:
        def fail(*args: Any, **kwargs: Any) -> None:
            raise error("enough")

        if event == "forward":
            self.on_step_begin = lambda *_, model, **__: setattr(model, "forward", fail)
        else:
            setattr(self, event, fail)


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ("forward", KeyboardInterrupt),
        ("forward", RuntimeError),
        ("on_epoch_begin", RuntimeError),
        ("on_step_end", KeyboardInterrupt),
        ("on_evaluate", RuntimeError),
    ],
)
def test_an_exception_anywhere_in_the_loop_detaches(
    tmp_path: Path, event: str, error: type[BaseException]
) -> None:
    run = trainer(
        tmp_path,
        _Fails(event, error),
        ActzipCallback(noise_every=0),
        max_steps=1,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
    )
    with pytest.raises(error, match="enough"):
        run.train()
    assert actzip.session_of(run.model) is None
    assert not {"log", "training_step", "_run_epoch"} & vars(run).keys()
    assert "call_event" not in vars(run.callback_handler)


@pytest.mark.parametrize("arguments", [{"gradient_checkpointing": True}, {"bf16": True}], ids=str)
def test_a_run_of_another_kind_is_compressed_too(tmp_path: Path, arguments: dict[str, Any]) -> None:
    run = trainer(tmp_path, ActzipCallback(), max_steps=4, **arguments)
    run.train()
    entry = _losses(run)[-1]
    assert entry["actzip/ratio"] > 2
    assert torch.isfinite(weights(run)).all()


def test_lossless_trains_as_plain_does(tmp_path: Path) -> None:
    plain = trainer(tmp_path)
    plain.train()
    exact = trainer(tmp_path, ActzipCallback("lossless", noise_every=0))
    exact.train()
    assert _losses(exact)[-1]["actzip/ratio"] > 1
    assert torch.equal(weights(plain), weights(exact))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # Dynamo asks
def test_a_compiled_run_is_compressed(tmp_path: Path) -> None:
    run = trainer(
        tmp_path,
        ActzipCallback(),
        max_steps=2,
        torch_compile=True,
        torch_compile_backend="aot_eager",
    )
    run.train()
    assert run.state.global_step == 2
    assert _losses(run)[-1]["actzip/ratio"] > 2
    assert actzip.session_of(run.model) is None


def test_lora_is_compressed_around_its_adapters(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True)
    model = peft.get_peft_model(gpt(), config)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    run = trainer(tmp_path, ActzipCallback(), model=model, max_steps=4)
    run.train()
    assert _losses(run)[-1].keys() >= KEYS
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert moved
    assert all("lora_" in name for name in moved)


def test_a_wrong_option_is_refused_when_the_callback_is_made() -> None:
    with pytest.raises(ValueError, match="bits"):
        ActzipCallback("actnn", bits=99)
    with pytest.raises(ValueError, match="noise_every"):
        ActzipCallback(noise_every=-1)
    with pytest.raises(TypeError, match=r"optimizer=… is the trainer's to give"):
        ActzipCallback(optimizer=None)


def test_without_a_trainer_the_model_is_compressed_and_the_log_is_missed() -> None:
    callback, model = ActzipCallback(), gpt()
    args = transformers.TrainingArguments(use_cpu=True, report_to=[])
    with pytest.warns(actzip.ActzipWarning, match="no trainer was found"):
        callback.on_train_begin(args, None, None, model=model)
    assert actzip.session_of(model) is callback.session
    callback.on_train_end(args, None, None)
    assert actzip.session_of(model) is None
