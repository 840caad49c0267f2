"""What the forward passes of a training step add up to, and the most that was stored at once.

A step ends with `optimizer.step()` if the session knows the optimizer. If it does not, a step is
the forward passes up to the first that begins when no payload of an earlier one is alive: passes
whose graphs are alive together are one step, and so is each pass of a gradient accumulation.
Around code without a model, where a pass is what lies between two backward passes, each is a step.
"""

from __future__ import annotations

import threading
import weakref

import torch
from torch.utils.hooks import RemovableHandle

from actzip.autograd.forward_pass import ForwardPass
from actzip.autograd.ledger import Stats
from actzip.autograd.stored import Pool
from actzip.codecs import unsettled


class Totals:
    """The sums of the present step: they begin anew with the first pass that ends after it.

    Only numbers and the last pass are kept, however many passes a step has.
    """

    def __init__(self, pool: Pool, optimizer: torch.optim.Optimizer | None):
        self.last: ForwardPass | None = None  #: the last finished forward pass
        self.peak = 0  #: payload bytes, the most at the end of any pass
        self.step_peak = 0  #: the same in this step
        self._pool = pool
        self._earlier: Stats | None = None  # this step's passes but the last
        self._stepped = False
        # passes that run, and whether no payload was alive when they began and no other pass ran
        self._running: weakref.WeakKeyDictionary[ForwardPass, bool] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._handle = None if optimizer is None else _after_steps(optimizer, self)

    def begin(self, forward_pass: ForwardPass) -> None:
        """A forward pass begins."""
        with self._lock:
            alone = not self._running and not self._pool.buffers.users
            for other in list(self._running):
                self._running[other] = False
            self._running[forward_pass] = alone
            if self._handle is None and (alone or forward_pass.root is None):
                self._stepped = True

    def finish(self, forward_pass: ForwardPass) -> None:
        """It is over; what it stored is counted."""
        with self._lock:
            alone = self._running.pop(forward_pass, False)
            if self._stepped or self.last is None:
                self._stepped, self._earlier, self.step_peak = False, None, 0
            else:
                self._earlier = self.sums()
            self.last = forward_pass
            # to ask every stored tensor takes longer than to add up the rows
            live = forward_pass.ledger.coded_bytes if alone else self._pool.nbytes
            self.step_peak = max(self.step_peak, live)
            self.peak = max(self.peak, live)

    @staticmethod
    def settle() -> None:
        """Have the sizes that devices have not told yet; waits for them."""
        unsettled.settle()

    def sums(self) -> Stats:
        """All passes of this step together; of the last step until the next pass is over."""
        assert self.last is not None, "asked before any pass was over"
        last = self.last.stats()
        return last if self._earlier is None else self._earlier + last

    def stepped(self) -> None:
        """The optimizer has made its step: the next pass begins another one."""
        self._stepped = True

    def remove(self) -> None:
        """Let go of the optimizer."""
        if self._handle is not None:
            self._handle.remove()


def _after_steps(optimizer: torch.optim.Optimizer, totals: Totals) -> RemovableHandle | None:
    """Has `totals` told of each step; weak, because an optimizer may outlive the session."""
    ref = weakref.ref(totals)

    def stepped(*_: object) -> None:
        found = ref()
        if found is not None:
            found.stepped()

    try:
        return optimizer.register_step_post_hook(stepped)
    except AttributeError:  # wrappers that are optimizers by name only have no hooks
        return None
