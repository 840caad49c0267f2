"""What a session learns from its passes, and the noise that its codes put into gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from actzip import methods, noise, planning
from actzip.autograd.failures import Failures
from actzip.control.statistics import Statistics, sample_indices
from actzip.memory.step_peak import StepPeak
from actzip.methods.base import Method, Policy
from actzip.noise import NoiseReport
from actzip.numbers import Numbers
from actzip.warning import warn


class Learning(Numbers):
    """The part of a session that tells its policy what the passes showed."""

    def __init__(
        self,
        method: Method,
        policy: Policy,
        optimizer: torch.optim.Optimizer | None,
        min_bytes: int,
    ):
        super().__init__(method, policy, optimizer, min_bytes)
        self.log: list[str] = []  #: what a guard did, and why
        self._statistics = Statistics(policy.history)
        self._indices: torch.Tensor | None = None
        self._trains = True  # False: its passes are not those of a training run
        self._untold = 0  # compiled passes that the policy was not told of
        self._meter = StepPeak()
        self._failures = Failures()

    def _attached(self) -> tuple[nn.Module, Sequence[Learning]]:
        """The model, and the sessions of it and of its parts."""
        raise NotImplementedError

    def samples(self, indices: torch.Tensor | Sequence[int]) -> None:
        """Say which samples of the data set the next forward pass is given, by their indices.

        Methods that spread bits over samples then remember how sensitive each of them was. For
        that they look at each backward pass so announced, which takes several times as long.
        """
        self._indices = sample_indices(indices)

    def watch(self, loss: torch.Tensor | float) -> None:
        """Tell a guarded session the loss of this step; precision rises when it leaves its band."""
        self._policy.watch(float(loss.detach() if isinstance(loss, torch.Tensor) else loss))
        self._tell()

    def gradient_noise(
        self,
        batch: noise.Batch,
        loss: noise.Loss | None = None,
        *,
        draws: int = 16,
        parts: int = 8,
    ) -> NoiseReport:
        """Bias², quantization variance and SGD variance of each parameter's gradient on a batch.

        batch  (inputs, targets): the loss is loss(model(inputs), targets); or a dict of inputs:
               the model is called as model(**batch), and returns its loss, as its output, as the
               output's `.loss` or as ["loss"], unless `loss` is given
        loss   a mean over samples: of (output, targets), by default cross_entropy; for a dict, of
               (output, batch)
        draws  repeated forward and backward passes with new rounding
        parts  pieces of the batch, along the first dimension of its tensors, whose gradients show
               the SGD variance

        Precision stays as the methods of this session and of those inside have it now. Gradients,
        buffers, random streams and the sessions' state are afterwards as they were.
        """
        model, sessions = self._attached()
        if draws < 2 or parts < 2:
            raise ValueError(
                f"a variance needs at least 2 draws and parts, got {draws} and {parts}"
            )
        names, gradients = noise.gradients_of(model, loss)
        with noise.put_back(model), contextlib.ExitStack() as aside:
            policies = [aside.enter_context(session._aside()) for session in sessions]
            for session in sessions:
                session._policy = methods.Lossless().start(None)
            exact = gradients(batch)
            pieces = [gradients(piece) for piece in noise.pieces(batch, parts)]
            for session, policy in zip(sessions, policies, strict=True):
                session._policy = policy
            self._noise = noise.compare(names, exact, lambda: gradients(batch), pieces, draws)
        return self._noise

    @contextlib.contextmanager
    def _aside(self) -> Iterator[Policy]:
        """Passes that leave no trace: nothing is learned or counted, and all is put back."""
        policy, step, indices = self._policy, self.step, self._indices
        learned = policy.state_dict()
        self._trains, self._indices = False, None
        try:
            yield policy
        finally:
            self._trains, self._indices = True, indices
            self._policy, self.step = policy, step
            policy.load_state_dict(learned)

    def _pass(self) -> int:
        """The number of the last pass for the policy, which counts those that it was told of."""
        return self.step - 1 - self._untold

    def _wants_look(self) -> bool:
        """Whether the method wants to look at the pass that it is told of next."""
        if not self._trains or planning.active:
            return False
        return self._policy.wants(self._pass() + 1, self._statistics)

    def _learn(self, step: int) -> bool:
        """Whether the method wants to look at this pass's backward."""
        if planning.active:  # there are no values to look at
            return False
        try:
            self._hear_peak()
            return self._policy.begin(step, self._statistics)
        except Exception as error:  # precision stays as it was
            if not self._failures.contain(error):
                raise
            return False

    def _hear_peak(self) -> None:
        """Tell the method the peak of the last pass, if that was measured."""
        peak = self._meter.end()
        if peak is not None:
            self._policy.peaked(peak)

    def _measure(self, root: nn.Module | None) -> None:
        """Measure the peak of the pass that begins, for a method that asks for it."""
        if root is not None and self._policy.wants_peak:
            self._meter.begin(root, self.optimizer, self._pool.nbytes)

    def _tell(self) -> None:
        for message in self._policy.messages():
            self.log.append(message)
            warn(message)
