"""Work of a CUDA device that is captured once and launched again as a whole."""

import gc
import os
import warnings
from collections.abc import Callable
from typing import Any

from .. import _C, _graphs
from .._graphed_callables import make_graphed_callables as _make_graphed_callables
from .._step_graphs import StepGraph
from . import _devices
from .memory import empty_cache
from .streams import Stream, StreamContext

__all__ = [
    "CUDAGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
]

_MODES = ("global", "thread_local", "relaxed")
_handles: list[_graphs.MemPool] = []  # pools of graph_pool_handle(), which only their ids name


def is_current_stream_capturing() -> bool:
    """Whether this thread's work on the current device is recorded into a graph instead of run."""
    return _devices.count() > 0 and _C.is_capturing(_devices.checked("is_current_stream_capturing"))


def graph_pool_handle() -> tuple[int, int]:
    """The id of a new memory pool, which several graphs can share. It lives as long as the process."""
    _handles.append(_graphs.MemPool())
    return _handles[-1].id


class CUDAGraph:
    """Work of the current CUDA device that is captured and launched again; see `accelerator.Graph`, and `graph`.

    Args:
        keep_graph: keep the graph at the end of the capture; `instantiate` or the first replay make it executable.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._keep = keep_graph
        self._graph: _C.Graph | None = None
        self._debug = self._kept = False

    def _made(self, function: str) -> _C.Graph:
        if self._graph is None:
            raise _C.StateError(
                f"CUDAGraph.{function}: nothing was captured; call capture_begin() first"
            )
        return self._graph

    def capture_begin(
        self,
        pool: tuple[int, int] | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Record what the thread gives to the current stream from now on, which must not be the default one.

        Args:
            pool: id of a memory pool, from `graph_pool_handle`, `CUDAGraph.pool` or `MemPool.id`.
            capture_error_mode: taken for PyTorch's sake: what cannot be recorded is refused on this thread.
            check_input_liveness: not supported.
        """
        if capture_error_mode not in _MODES:
            raise RuntimeError(
                f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {capture_error_mode}"
            )
        if check_input_liveness:
            raise _C.NotImplementedForError("CUDAGraph: check_input_liveness=True is not supported")
        place = _devices.checked("CUDAGraph.capture_begin")
        keep = self._keep or self._debug
        if self._graph is None or pool is not None or keep != self._kept:
            number = None if pool is None else _graphs.pool_number(pool)
            self._graph, self._kept = _C.Graph(keep, number), keep
        self._graph.capture_begin(place)

    def capture_end(self) -> None:
        """End the capture, by the thread that began it."""
        self._made("capture_end").capture_end()

    def instantiate(self) -> None:
        """Make a kept graph executable (again)."""
        self._made("instantiate").instantiate()

    def replay(self) -> None:
        """Put the captured work behind what the current stream has been given."""
        self._made("replay").replay()

    def reset(self) -> None:
        """Drop the captured work; the graph can capture again."""
        if self._graph is not None:
            self._graph.reset()

    def pool(self) -> tuple[int, int]:
        """The id of its memory pool."""
        return 0, self._made("pool").pool

    def enable_debug_mode(self) -> None:
        """Keep the graph that is captured next, so that `debug_dump` can write it."""
        self._debug = True

    def debug_dump(self, debug_path: str) -> None:
        """Write the captured graph to a file, in the DOT format.

        Without `enable_debug_mode` before the capture, or `keep_graph`, it only warns.

        Raises:
            StateError: if nothing was captured.
        """
        made = self._made("debug_dump")
        if not self._kept:
            warnings.warn(
                "CUDA Graphs debug not enabled, set with [graph].enable_debug_mode()", stacklevel=2
            )
            return
        made.dump(os.fspath(debug_path))

    def raw_cuda_graph(self) -> int:
        """The driver's pointer to the captured graph, which must be kept (`keep_graph=True`)."""
        found = self._made("raw_cuda_graph").handles[0]
        if not found:
            raise _C.StateError(
                "CUDAGraph.raw_cuda_graph: the graph was not kept; make it with keep_graph=True"
            )
        return found

    def raw_cuda_graph_exec(self) -> int:
        """The driver's pointer to the executable graph."""
        found = self._made("raw_cuda_graph_exec").handles[1]
        if not found:
            raise _C.StateError("CUDAGraph.raw_cuda_graph_exec: it is not instantiated yet")
        return found

    def get_graph_data(self) -> dict[str, Any]:
        """Refused: what a graph is made of is the driver's; `debug_dump` writes it."""
        raise _C.NotImplementedForError("CUDAGraph.get_graph_data: use debug_dump")


class graph:
    """A context manager that captures its body into a CUDAGraph; of a function, the function as graphs.

        g = rabbet.cuda.CUDAGraph()
        with rabbet.cuda.graph(g):
            y = model(x)
        g.replay()

        step = rabbet.cuda.graph(train_step)     # or as a decorator
        loss = step(x, target)

    The second form gives a callable that captures once for each kind of arguments, see `accelerator.graphed`, whose
    keyword arguments it takes.

    Args:
        cuda_graph: that captures, or a function.
        pool: id of a memory pool to share.
        stream: that the body runs on; None: one of its own for all such contexts.
        capture_error_mode: "global", "thread_local" or "relaxed", taken for PyTorch's sake.
    """

    default_capture_stream: Stream | None = None

    def __new__(cls, cuda_graph: Any, *args: Any, **kwargs: Any) -> Any:
        if callable(cuda_graph) and not isinstance(cuda_graph, CUDAGraph):
            if args:
                raise TypeError("cuda.graph: options of a function's graphs are keyword arguments")
            kwargs.setdefault("device", "cuda")
            return StepGraph(cuda_graph, **kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: tuple[int, int] | None = None,
        stream: Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        if not isinstance(cuda_graph, CUDAGraph):
            raise TypeError(
                f"cuda.graph: expected a CUDAGraph or a function, got {type(cuda_graph).__name__}"
            )
        if stream is None:
            if graph.default_capture_stream is None:
                graph.default_capture_stream = Stream()
            stream = graph.default_capture_stream
        self.cuda_graph = cuda_graph
        self.pool = () if pool is None else (pool,)
        self.capture_stream = stream
        self.capture_error_mode = capture_error_mode
        self._check_liveness = check_input_liveness
        self.stream_ctx = StreamContext(stream)

    def __enter__(self) -> None:
        _C.synchronize(_devices.checked("graph"))
        gc.collect()
        empty_cache()
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(
                self.pool[0] if self.pool else None,
                capture_error_mode=self.capture_error_mode,
                check_input_liveness=self._check_liveness,
            )
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.cuda_graph.capture_end()
        except RuntimeError:
            if error is None:  # else that of the body is the one to be told
                raise
        finally:
            self.stream_ctx.__exit__(kind, error, trace)


def make_graphed_callables(
    callables: Callable[..., Any] | tuple[Callable[..., Any], ...],
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: tuple[int, int] | None = None,
) -> Any:
    """Functions or modules whose forward and backward passes are launched as graphs.

    Modules are returned themselves, with another `forward`; in the other mode (`train`, `eval`) they run as before.
    Arguments must have the shapes, dtypes and `requires_grad` of the samples. Results and gradients lie where the
    graphs write them.

    Args:
        callables: a function or module, or a tuple of some that always run in this order.
        sample_args: the arguments of one call, a tuple of tensors; of several callables a tuple of such tuples.
        num_warmup_iters: runs before the capture.
        allow_unused_input: arguments and parameters may have no gradient.
        pool: id of a memory pool to share.
    """
    place = _devices.checked("make_graphed_callables")
    return _make_graphed_callables(
        callables, sample_args, num_warmup_iters, allow_unused_input, pool, place
    )
