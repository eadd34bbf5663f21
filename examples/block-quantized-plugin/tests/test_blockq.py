"""Block-quantized weights: what they stand for, `linear`, files, copies, gradients, and what is refused."""

import copy
import io
import pickle

import pytest
import rabbet
import rabbet_blockq
from rabbet import composite, nn
from rabbet.nn import functional as F

FORMATS = [(8, 32), (8, 2), (4, 32), (4, 16)]
formats = pytest.mark.parametrize("bits,block", FORMATS)


def made(bits, block, shape=(6, 64), dtype=rabbet.float32):
    rabbet.manual_seed(1)
    weight = rabbet.randn(*shape, dtype=dtype)
    return weight, rabbet_blockq.quantize(weight, bits=bits, block=block)


@formats
@pytest.mark.parametrize("shape", [(64,), (6, 64), (2, 3, 64)])
def test_it_stands_for_the_weight_within_half_a_step(bits, block, shape):
    weight, q = made(bits, block, shape)
    assert q.shape == weight.shape and q.dtype is weight.dtype and composite.layer(q) == "blockq"
    most = weight.unflatten(-1, (-1, block)).abs().amax(-1) / (127 if bits == 8 else 7)
    error = (composite.values(q) - weight).unflatten(-1, (-1, block)).abs().amax(-1)
    assert (error <= most * 0.5 + 1e-6).all()


@formats
def test_it_is_small(bits, block):
    weight, q = made(bits, block)
    nbytes = sum(part.nbytes for part in composite.parts(q))
    assert nbytes == weight.numel() * bits // 8 + weight.numel() // block * 4


def test_blocks_of_zeros_stay_zeros():
    for bits in (8, 4):
        q = rabbet_blockq.quantize(rabbet.zeros(2, 32), bits=bits, block=16)
        assert not composite.values(q).any()


@formats
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 6, 2500])
def test_linear_gives_what_the_values_give(bits, block, bias, rows):
    _, q = made(bits, block, (rows, 64))
    x, b = rabbet.randn(5, 3, 64), rabbet.randn(rows) if bias else None
    assert F.linear(x, q, b).allclose(F.linear(x, composite.values(q), b), atol=1e-5)


@formats
def test_gradients_flow_to_the_input(bits, block):
    _, q = made(bits, block)
    x = rabbet.randn(5, 64, requires_grad=True)
    F.linear(x, q).sum().backward()
    assert x.grad.allclose(composite.values(q).sum(0).expand(5, 64), atol=1e-5)
    assert rabbet.vmap(lambda v: F.linear(v, q))(x).allclose(F.linear(x, q), atol=1e-5)


@formats
def test_files_copies_and_pickles_keep_it(bits, block):
    _, q = made(bits, block)
    file = io.BytesIO()
    rabbet.save({"w": q, "n": [1, q]}, file)
    file.seek(0)
    loaded = rabbet.load(file)
    for other in (
        loaded["w"],
        loaded["n"][1],
        q.clone(),
        copy.deepcopy(q),
        pickle.loads(pickle.dumps(q)),
    ):
        assert composite.blob(other) == composite.blob(q)
        assert composite.values(other).equal(composite.values(q))
    assert q.to("meta").is_meta


def test_a_file_with_parts_that_do_not_fit_is_refused():
    _, q = made(8, 32)
    codes, scales = composite.parts(q)
    for parts, blob in (
        ((codes,), composite.blob(q)),
        ((codes, scales[:2]), composite.blob(q)),
        ((codes, scales), b"\0" * 8),
    ):
        with pytest.raises(ValueError, match="the parts of a saved tensor do not fit"):
            composite.compose("blockq", q.shape, q.dtype, parts, blob)


def test_a_model_keeps_its_answers():
    rabbet.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    x = rabbet.randn(32, 64)
    exact = model(x)
    rabbet_blockq.quantize_linears(model)
    assert (model(x) - exact).abs().max() < 0.02 * exact.abs().max()
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["0.bias", "2.bias"]
    other = copy.deepcopy(model)
    file = io.BytesIO()
    rabbet.save(model.state_dict(), file)
    file.seek(0)
    with rabbet.no_grad():
        for part in composite.parts(other[0].weight):
            part.zero_()
    other.load_state_dict(rabbet.load(file))
    assert other(x).equal(model(x))


def test_every_other_operator_sees_the_values():
    _, q = made(8, 32)
    values = composite.values(q)
    assert (
        (q * 2).equal(values * 2)
        and q.T.equal(values.T)
        and rabbet.cat([q, q]).equal(rabbet.cat([values, values]))
    )
    assert q.numpy().tolist() == values.tolist() and q[0, 0].item() == values[0, 0].item()
    assert repr(q) == "blockq(shape=(6, 64), bits=8, block=32)"
    assert "a handler of its own [rabbet-blockq 0.1.0]" in rabbet.library.explain(
        "linear", rabbet.ones(1, 64), q
    )


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda q: q.add_(1), "add: a block-quantized tensor can only be overwritten by copy_"),
        (lambda q: q.copy_(rabbet.zeros(6, 64)), "copy: a block-quantized tensor can only be overwritten by copy_"),
        (lambda q: rabbet.add(q, 1, out=q), "composite of the layer 'blockq'|only be overwritten"),
        (lambda q: rabbet_blockq.quantize(q, bits=3), "bits must be 8 or 4, got 3"),
        (lambda q: rabbet_blockq.quantize(rabbet.zeros(2, 33)), r"divide the last of \(2, 33\), got 32"),
        (lambda q: rabbet_blockq.quantize(rabbet.zeros(2, 32, dtype=rabbet.int32)), "weight must be floating"),
    ],
)  # fmt: skip
def test_what_is_refused(call, message):
    with pytest.raises((RuntimeError, ValueError), match=message):
        call(made(8, 32)[1])
