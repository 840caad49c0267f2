"""Sees each new autograd node right after the op that made it."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import TorchFunctionMode

from actzip.autograd.compiled import traced
from actzip.autograd.forward_pass import ForwardPass
from actzip.autograd.gradient_graphs import GradientGraphs
from actzip.autograd.identity import node_of, tensors_in
from actzip.autograd.renewed_views import hands_on, is_given, is_renewed
from actzip.autograd.slots import IDLE
from actzip.autograd.slots.derivations import drops
from actzip.autograd.transforms import INSIDE, is_transforming, untransformed
from actzip.torch_private import (
    DisableTorchFunction,
    dispatch_modes,
    get_tracing_state,
    not_compiled,
    transform_level,
)

#: AccumulateGrad's sequence number: parameters end every walk.
_LEAF = 2**64 - 1

_BACKWARD = frozenset({Tensor.backward, torch.autograd.backward, torch.autograd.grad})

#: Give the user a tensor's memory under another version, or under none.
_EXPOSES = frozenset(
    {
        Tensor.data.__get__,  # type: ignore[attr-defined]
        *(Tensor.numpy, Tensor.__array__, Tensor.__dlpack__),
        *(Tensor.data_ptr, Tensor.untyped_storage, Tensor.storage),
    }
)

#: What `_before` acts on; most ops are neither.
_SPECIAL = _BACKWARD | _EXPOSES

#: Layers store the values of their input and edit nothing: a ReLU's bits can wait for them.
_LAYERS = frozenset(
    {
        *(torch.conv1d, torch.conv2d, torch.conv3d, F.linear),
        *(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
    }
)


def _sequence_now() -> int:
    """A sequence number between those of this thread's past and future nodes."""
    with torch.enable_grad():
        node: Any = torch.empty(0, requires_grad=True).view(0).grad_fn
    return _LEAF if node is None else int(node._sequence_nr())  # None: inference mode


class Watcher(TorchFunctionMode):
    """Active during one forward pass, in one thread; hands each new node to it once.

    Nodes are told apart by their sequence numbers: those from before the pass began belong to
    somebody else (another model's graph, a hidden state kept from the last step). All numbers up
    to `_last` were seen, of those above it the ones in `_ahead`, and none above `_highest`.

    Without a root module nobody says when a forward pass ends, so a backward pass ends it, and
    the next op begins a new one: a whole training loop may run inside one `with`.

    While it is paused another watcher has the ops of this thread, see nesting.py. The nodes that
    they make are walked through, because there may be ours beyond, and not visited.
    """

    def __init__(
        self,
        begin: Callable[[], ForwardPass],
        finished: Callable[[ForwardPass], None],
        key: str = "",
    ):
        super().__init__()
        self.key = key  #: of the session, for what is compiled
        self._begin = begin
        self._finished = finished
        self.around: list[tuple[int, Watcher]] = []  #: wait for this one: places on the mode stack
        self.paused = self.ended = False
        self._gradient_graphs = GradientGraphs()
        self._backward = _LEAF  # the sequence number at which the last one began
        self._open()

    def _open(self) -> None:
        # a default device of the user's is not for what a method learns
        with untransformed(), DisableTorchFunction():
            self.forward_pass = self._begin()
        self._gradient_graphs.begin()
        self.forward_pass.gradient_graphs = self._gradient_graphs
        self._deferred = self.forward_pass.deferred
        self._pending = self.forward_pass.copies.pending
        self._last = self._highest = _sequence_now()
        self._ahead = {_LEAF}
        self._others: list[range] = []  # nodes made while it was paused

    def pause(self) -> None:
        """Another watcher takes over; it might edit the ReLU's result that waits."""
        self.paused = self.forward_pass.gave_way = True
        with untransformed():
            self.forward_pass.settle()
        self._away = _sequence_now()

    def resume(self) -> None:
        """Go on; the nodes made meanwhile are not ours."""
        self.paused = False
        now = _sequence_now()
        self._others.append(range(self._away, now + 1))
        if self._last + 1 == self._away:
            self._last = now
        self._highest = max(self._highest, now)

    def _close(self) -> None:
        with untransformed():
            self.forward_pass.close()
            self._finished(self.forward_pass)

    @not_compiled
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if is_compiling():  # Dynamo traces this function: it must find nothing of ours
            traced(self.key)
            return func(*args, **(kwargs or {}))
        inside = transform_level() is not None or (dispatch_modes() and is_transforming())
        special = func in _SPECIAL
        if special or self._deferred.waits:
            self._before(func, args, inside)
        out = func(*args, **kwargs) if kwargs else func(*args)
        if inside:
            self.forward_pass.passed_over(INSIDE)
            return out
        try:
            if special and func in _BACKWARD:
                self._differentiated(args)
            if isinstance(out, Tensor):
                if is_given(out, args, kwargs) and hands_on(func, out):
                    return out
                try:  # `node_of`, written out: every op asks
                    node = out.grad_fn
                except RuntimeError:
                    return out
                # a number that was seen: the call made no node, as an edit under no_grad does not
                if node is not None and (number := node._sequence_nr()) > self._last:
                    if self.forward_pass.derives and number == self._highest + 1:
                        self._made(node, number, func, args, kwargs, out)
                    else:
                        self._walk(node, number, args, kwargs)
                    if self._pending:
                        self.forward_pass.returned(out)
            elif isinstance(out, (tuple, list)):
                for item in out:
                    if not isinstance(item, Tensor):
                        continue
                    if any(item is t for t in tensors_in(args)) and hands_on(func, item):
                        continue
                    if (node := node_of(item)) is not None:
                        self._walk(node, node._sequence_nr(), args, kwargs)
                if self._pending:
                    self.forward_pass.returned(out)
        except Exception as error:
            if not self.forward_pass.contain(error):
                raise
        return out

    def _made(
        self, node: Any, number: int, func: Any, args: tuple[Any, ...], kwargs: Any, out: Tensor
    ) -> None:
        """The only node that a call made: perhaps its result can be made again."""
        forward_pass = self.forward_pass
        late = False  # made from what its node saves, which must be looked at first
        if type(node).__name__ in forward_pass.cheap and get_tracing_state() is None:
            late = drops(func)
            if not late:
                forward_pass.made(node, func, args, kwargs, out)
        self._walk(node, number, args, kwargs)
        if late:
            forward_pass.made(node, func, args, kwargs, out)

    def _before(self, func: Any, args: tuple[Any, ...], inside: bool) -> None:
        """What must be done before the op runs, perhaps inside a transform."""
        try:
            if func in _BACKWARD and not inside:
                if self.forward_pass.root is None:
                    self._close()
                    self._open()
                with DisableTorchFunction():
                    self._backward = _sequence_now()
            if self.forward_pass.deferred.waits and (inside or func not in _LAYERS):
                with untransformed():
                    self.forward_pass.settle()
            if func in _EXPOSES:
                self.forward_pass.expose(args[0])
        except Exception as error:
            if not self.forward_pass.contain(error):
                raise

    def _differentiated(self, args: tuple[Any, ...]) -> None:
        """A backward of these outputs ran: with create_graph it made nodes."""
        with DisableTorchFunction():
            numbers = range(self._backward + 1, _sequence_now())
            if numbers:
                self._gradient_graphs.made(numbers, map(node_of, tensors_in(args[:1])))

    def abandon(self) -> None:
        """The pass ended by an exception: there is nothing to tell of it."""
        with untransformed():
            self.forward_pass.close()

    def finish(self, output: object = None) -> None:
        """The pass is over; a custom Function at its very end is met through the output."""
        try:
            for t in tensors_in(output, depth=4):
                node = None if is_transforming() or is_renewed(t) else node_of(t)
                if node is not None:
                    self._walk(node, node._sequence_nr(), (), None)
        except Exception as error:
            if not self.forward_pass.contain(error):
                raise
        self._close()

    def _walk(self, node: Any, number: int, args: tuple[Any, ...], kwargs: Any) -> None:
        """Visit this node, the one of that number, and what is new behind it."""
        if get_tracing_state() is not None:
            return  # torch.jit.trace would record what we do
        forward_pass, before, behind = self.forward_pass, number - self._last, None
        if before == 2 and len(self._ahead) == 1 and not self._others:
            for parent, _ in node.next_functions:  # mostly a Linear's transposed weight
                if parent is not None and parent._sequence_nr() == number - 1:
                    behind = parent
                    break
        if before == 1 or behind is not None:  # numbers are given in turn: no other is new
            self._last = number
            if number > self._highest:
                self._highest = number
            forward_pass.visited = True
            if behind is not None and type(behind) not in IDLE:
                forward_pass.visit(behind, number - 1, args, kwargs)
            if type(node) not in IDLE:
                forward_pass.visit(node, number, args, kwargs)
            return
        found = self._new(node, number)
        if not found:
            return
        if len(found) > 1:
            found.sort(key=itemgetter(0))  # in the order in which the ops ran
        self._highest = max(self._highest, found[-1][0])
        if self._others:
            others = self._others
            found = [pair for pair in found if not any(pair[0] in numbers for numbers in others)]
        forward_pass.visited = True
        for number, node in found:
            if type(node) not in IDLE:
                forward_pass.visit(node, number, args, kwargs)

    def _new(self, node: Any, number: int) -> list[tuple[int, Any]]:
        """This node and all behind it that were not seen yet, with their numbers."""
        last, ahead = self._last, self._ahead
        if number <= last or number in ahead:
            return []
        top = number
        missing = number - last if len(ahead) == 1 else 0  # so many can be new; 0: nobody knows
        found = [(number, node)]
        seen = {number}
        stack = [node]
        missing -= 1
        while stack and missing:
            for parent, _ in stack.pop().next_functions:
                if parent is None:
                    continue
                number = parent._sequence_nr()
                if number <= last or number in seen or number in ahead:
                    continue
                seen.add(number)
                found.append((number, parent))
                stack.append(parent)
                missing -= number <= top  # those of other threads have other numbers
        if missing == 0 and len(found) == top - last:  # all up to the top, and none above it
            self._last = top
            return found
        ahead |= seen
        while last + 1 in ahead:
            last += 1
            ahead.remove(last)
        self._last = last
        return found
