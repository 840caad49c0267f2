"""What a session tells of itself: bytes of a pass and of a step, as a table, and for a logger."""

from __future__ import annotations

import math
from html import escape

import torch

from actzip import report
from actzip.autograd.ledger import Stats
from actzip.autograd.stored import Pool
from actzip.autograd.totals import Totals
from actzip.methods.base import Method, Policy
from actzip.noise import NoiseReport


class Numbers:
    """The part of a session that counts and answers."""

    def __init__(
        self,
        method: Method,
        policy: Policy,
        optimizer: torch.optim.Optimizer | None,
        min_bytes: int,
    ):
        self.method = method
        self.optimizer = optimizer
        self.min_bytes = min_bytes
        self.step = 0  #: forward passes begun
        self._policy = policy
        self._pool = Pool(policy.decodes_once)
        self._totals = Totals(self._pool, optimizer)
        self._noise: NoiseReport | None = None  # as it was asked for last

    def _compiled(self) -> tuple[int, int]:
        """Graphs that torch.compile made inside the session, and those of code that had one."""
        return 0, 0

    def stats(self) -> Stats:
        """The last finished forward pass: bytes, ratio, and a row per saved tensor."""
        if self._totals.last is None:
            raise RuntimeError(
                "no forward pass has finished yet; run the model in training mode with gradients "
                "enabled, then ask again"
            )
        self._totals.settle()
        return self._totals.last.stats()

    def totals(self) -> Stats:
        """The same of all forward passes of a training step together, `passes` of them.

        With an optimizer given to `compress`, these are the passes since its last step, and after
        a step those that led to it, until the next pass is over. Without one, a step ends before
        the first forward pass that begins when no payload of an earlier one is alive: passes whose
        graphs live at the same time add up, those of a gradient accumulation do not. Around code,
        without a model, each pass from backward to backward is then a step.
        """
        if self._totals.last is None:
            return self.stats()
        self._totals.settle()
        return self._totals.sums()

    def report(self, *, depth: int | None = None, top: int | None = None) -> str:
        """`totals()` as a table of 80 columns: where the bytes went, by module, the largest first.

        Layers that are equal but for their number are one line, `layers.{0-11}.mlp`.

        depth  put modules together whose paths begin with the same so many names
        top    only so many lines, and one for the rest
        """
        said = report.table(
            self.totals(), repr(self.method), peak=self._totals.step_peak, depth=depth, top=top
        )
        return said + "".join(f"{line}\n" for line in self._closing())

    def _closing(self) -> list[str]:
        """What the method says at the end of a report."""
        lines = self._policy.summary()
        if lines and self._noise is not None:
            share = self._noise.total.share
            lines.append(f"measured by gradient_noise: {share:.2%} of SGD's variance")
        compiled, recompiled = self._compiled()
        if compiled:
            lines.append(f"torch.compile made {compiled} graphs, {recompiled} of code that had one")
        return lines

    def _repr_html_(self) -> str:
        """What a notebook shows: the report, where each module opens to what it keeps."""
        if self._totals.last is None:
            return f"<pre>{escape(repr(self))}</pre>"
        peak, closing = self._totals.step_peak, self._closing()
        return report.as_html(self.totals(), repr(self.method), peak=peak, below=closing)

    def explain(self, name: str = "") -> str:
        """Why the saved tensors of a module or site were or were not compressed, and what to do."""
        return report.explain(self.stats(), name, self.min_bytes)

    def metrics(self) -> dict[str, float]:
        """Numbers for a logger: flat, and every one a finite float.

        step                    forward passes begun, as `Session.step`
        passes                  forward passes of this training step, see `totals`
        raw_bytes               what PyTorch would have kept for them, summed
        saved_bytes             what was kept
        ratio                   raw_bytes / saved_bytes
        live_bytes              payloads held at this moment
        peak_stored_bytes       payloads at the end of a forward pass, the most since the beginning
        step_peak_stored_bytes  the same in this training step
        noise_share             quantization variance / SGD variance, by the last `gradient_noise`
        noise_bias              bias² / squared gradient, by the last `gradient_noise`
        noise_predicted         with method="auto": the share that it predicts
        guard_level             with guard=True: how often errors were halved
        compiled_graphs         what torch.compile made inside the session
        recompiled_graphs       of them those of code that had one: other shapes, a changed flag

        The last six are there when they are known.
        """
        sums = Stats(passes=0) if self._totals.last is None else self._totals.sums()
        total = None if self._noise is None else self._noise.total
        compiled, anew = self._compiled()
        found = {
            "step": self.step,
            "passes": sums.passes,
            "raw_bytes": sums.raw_bytes,
            "saved_bytes": sums.stored_bytes,
            "ratio": sums.ratio,
            "live_bytes": self.live_bytes,
            "peak_stored_bytes": self._totals.peak,
            "step_peak_stored_bytes": self._totals.step_peak,
            **({} if total is None else {"noise_share": total.share, "noise_bias": total.lean}),
            **self._policy.metrics(),
            **({"compiled_graphs": compiled, "recompiled_graphs": anew} if compiled else {}),
        }
        return {name: float(value) for name, value in found.items() if math.isfinite(value)}

    @property
    def live_bytes(self) -> int:
        """Payload bytes held at this moment, for all graphs that are alive."""
        return self._pool.nbytes

    @property
    def peak_stored_bytes(self) -> int:
        """The most of them at the end of a forward pass, since the session began."""
        return self._totals.peak
