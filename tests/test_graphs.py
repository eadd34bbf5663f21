"""Graphs on the backend `lazy`, which records closures: what is captured runs at each replay, on the pool's memory and
with new random numbers."""

import gc

import numpy as np
import pytest
import rabbet
import rabbet.nn.functional as F
from lazy_device import X, seen, there
from rabbet import _C, accelerator
from rabbet.accelerator import Graph

pytestmark = pytest.mark.usefixtures("lazy", "settled")


def graph(**options):
    return Graph(device="lazy", **options)


@pytest.fixture
def stream():
    s = rabbet.Stream("lazy")
    s.wait_stream(accelerator.current_stream("lazy"))
    with s:
        yield s


def test_signatures_are_those_of_torch():
    torch = pytest.importorskip("torch")
    public = {name for name in dir(Graph) if not name.startswith("_")}
    assert public <= set(dir(torch.accelerator.Graph))


def test_captured_work_runs_at_each_replay(stream):
    x = there()
    g = graph()
    with g:
        y = x * 2
        y += 1
    assert np.isnan(seen(y)).all()  # it was recorded only
    g.replay()
    assert (seen(y) == 2 * X + 1).all()
    x.copy_(rabbet.tensor(10 * X))
    assert (seen(y) == 2 * X + 1).all()
    g.replay()
    assert (seen(y) == 20 * X + 1).all()
    y2 = x * 3  # not captured
    assert (seen(y2) == 30 * X).all()


def test_the_pool_keeps_what_the_graph_writes(stream):
    x, g = there(), graph()
    with g:
        a = x * 2
        b = a + 1  # `a` and its memory go while the graph lives
        place = a.data_ptr()
        del a
        c = b * 2
    assert c.data_ptr() == place  # within the graph memory is given again
    others = [rabbet.zeros(3, device="lazy") for _ in range(20)]
    _C.empty_cache()
    assert g.pool() in [s["segment_pool_id"] for s in accelerator.memory_snapshot()]
    taken = {t.data_ptr() for t in others}
    assert b.data_ptr() not in taken and c.data_ptr() not in taken
    g.replay()
    assert (seen(c) == 4 * X + 2).all() and not any(seen(t).any() for t in others)
    # Results that are dropped stay the graph's.
    place = b.data_ptr()
    del b
    assert place not in {rabbet.zeros(3, device="lazy").data_ptr() for _ in range(20)}
    pool = g.pool()
    del g
    gc.collect()
    assert (seen(c) == 4 * X + 2).all()
    del c
    assert pool not in [s["segment_pool_id"] for s in accelerator.memory_snapshot()]


def test_graphs_share_a_pool(stream):
    x = there()
    first, pool = graph(), accelerator.MemPool()
    with first:
        y = x + 1
    second = graph(pool=first.pool())
    assert second.pool() == first.pool()
    with second:
        z = y * 2
    third = graph(pool=pool.id)
    assert third.pool() == pool.id
    first.replay()
    second.replay()
    assert (seen(z) == 2 * X + 2).all()


def captured_step(seed, replays):
    """Weights after `replays` captured steps of SGD with dropout, and the masks that were drawn."""
    rabbet.manual_seed(seed)
    data = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    x, target = there(data), there(data[:, :1] * 2)
    w, b = there(X).requires_grad_(), there(np.zeros(1, np.float32)).requires_grad_()
    mask_of = there(np.ones((4, 3), np.float32))
    g = graph()
    with g:
        mask = F.dropout(mask_of, 0.5)
        loss = step(x, target, w, b, mask)
    found = []
    for _ in range(replays):
        g.replay()
        found.append((seen(mask).copy(), float(seen(loss)), seen(w.detach()).copy()))
    return found


def step(x, target, w, b, mask):
    w.grad = b.grad = None
    y = (x * mask * w).sum(1, keepdim=True) + b
    error = y - target
    loss = (error * error).sum()
    loss.backward()
    with rabbet.no_grad():
        w -= 0.1 * w.grad
        b -= 0.1 * b.grad
    return loss.detach()


def test_a_captured_training_step_is_that_of_eager_calls(stream):
    """Losses, weights and dropout's masks of 6 replays are those of 6 calls on the CPU with the same seed."""
    found = captured_step(3, 6)
    rabbet.manual_seed(3)
    data = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    x, target = rabbet.tensor(data), rabbet.tensor(data[:, :1] * 2)
    w, b = rabbet.tensor(X).requires_grad_(), rabbet.zeros(1).requires_grad_()
    for mask, loss, weights in found:
        drawn = F.dropout(rabbet.ones(4, 3), 0.5)
        assert (mask == drawn.numpy()).all()
        assert np.allclose(loss, step(x, target, w, b, drawn).item(), rtol=1e-5)
        assert np.allclose(weights, w.detach().numpy(), rtol=1e-5)
    masks = {mask.tobytes() for mask, _, _ in found}
    assert len(masks) == 6 and set(np.unique([m for m, _, _ in found])) == {0.0, 2.0}


def test_replays_take_the_counters_that_calls_would(stream):
    """A seed set between replays holds; what is drawn after a replay goes on behind it."""
    ones, g = there(np.ones(8, np.float32)), graph()
    rabbet.manual_seed(5)
    with g:
        first, second = F.dropout(ones, 0.5), F.dropout(ones, 0.5)
    before = _C.default_generator("lazy").get_state().tolist()
    rabbet.manual_seed(5)
    assert _C.default_generator("lazy").get_state().tolist() == before  # capturing draws nothing
    g.replay()
    third = F.dropout(ones, 0.5)
    found = [seen(t) for t in (first, second, third)]
    rabbet.manual_seed(5)
    plain = [seen(F.dropout(ones, 0.5)) for _ in range(3)]
    assert all((a == b).all() for a, b in zip(found, plain, strict=True))
    assert not (found[0] == found[1]).all()
    rabbet.manual_seed(6)
    g.replay()
    assert not (seen(first) == found[0]).all()


def test_what_cannot_be_captured_says_so(stream):
    x, g = there(), graph()
    with g:
        y = x + 1
        event = rabbet.Event("lazy")
        event.record()
        for call, text in (
            (lambda: y.cpu(), "a copy between the device and the host cannot be captured: the work of lazy:0 is recorded"),
            (lambda: y.sum().item(), "a copy between the device and the host"),
            (lambda: there(), "a copy between the device and the host"),
            (lambda: accelerator.synchronize("lazy"), "synchronize cannot be captured"),
            (stream.synchronize, "Stream.synchronize cannot be captured"),
            (stream.query, "Stream.query cannot be captured"),
            (event.synchronize, "Event.synchronize cannot be captured"),
            (event.query, "Event.query cannot be captured"),
            (lambda: x.clone().exponential_(), "exponential: its kernel cannot be captured"),
            (lambda: x.clone().uniform_(), "takes its counters from the host cannot be captured"),
            (lambda: x.clone().bernoulli_(generator=rabbet.Generator("lazy")), "another generator than the device's default one"),
            (lambda: graph().capture_begin(), "Graph.capture_begin: this thread captures another graph, on lazy:0"),
            (g.capture_begin, "it captures already"),
            (g.replay, "Graph.replay: end the capture first"),
            (g.reset, "Graph.reset: end the capture first"),
        ):  # fmt: skip
            with pytest.raises(RuntimeError, match=text):
                call()
        assert (there_on_one().cpu().numpy() == X).all()  # another device is not concerned
    g.replay()
    assert (seen(y) == X + 1).all()


def there_on_one():
    return rabbet.tensor(X).to("lazy:1")


def test_an_error_in_the_capture_leaves_nothing(stream):
    x, g = there(), graph()
    with pytest.raises(ZeroDivisionError), g:
        y = x + 1
        raise ZeroDivisionError
    del y
    with pytest.raises(rabbet.StateError, match=r"Graph.replay: no graph was captured"):
        g.replay()
    with g:  # it can capture again
        y = x + 2
    g.replay()
    assert (seen(y) == X + 2).all()


def test_kept_graphs(stream):
    x, g = there(), graph(keep_graph=True)
    with pytest.raises(rabbet.StateError, match=r"Graph.instantiate: no graph was captured"):
        g.instantiate()
    with g:
        x += 1
    g.replay()
    g.instantiate()
    g.replay()
    assert (seen(x) == X + 2).all()
    with pytest.raises(rabbet.StateError, match="holds a captured graph; reset"):
        g.capture_begin()
    g.reset()
    g.reset()
    with pytest.raises(rabbet.StateError, match="no graph was captured"):
        g.replay()


def test_bad_uses():
    with pytest.raises(
        NotImplementedError,
        match=r"the backend 'cpu' cannot capture graphs: it publishes no table 'cpu.capture'",
    ):
        Graph(device="cpu").capture_begin()
    with pytest.raises(rabbet.StateError, match="lazy: the default stream cannot be captured"):
        graph().capture_begin()
    with pytest.raises(rabbet.StateError, match=r"Graph.capture_end: it does not capture"):
        graph().capture_end()
    with pytest.raises(
        ValueError, match=r"capture_error_mode must be one of default, .*, got 'never'"
    ):
        graph(capture_error_mode="never")
    assert (there() + 1).cpu().numpy().tolist() == (X + 1).tolist()  # nothing was left
