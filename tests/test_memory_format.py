"""Strides of results in PyTorch's memory formats, against those of torch 2.13."""

import pytest
import rabbet
from rabbet import nn
from rabbet.nn import functional as F

CL, C3 = rabbet.channels_last, rabbet.channels_last_3d
P, CF = rabbet.preserve_format, rabbet.contiguous_format

# Call, strides of its result, and the formats in which that is contiguous; as torch 2.13 has them.
STRIDES = [
    ('c', (60, 1, 15, 3), 'last'),
    ('oc', (20, 20, 5, 1), 'row last'),
    ('hc', (3, 1, 1, 1), 'row last'),
    ('bc', (60, 1, 15, 3), 'last'),
    ('w', (120, 1, 40, 10, 2), 'last3d'),
    ('z.contiguous(memory_format=CL)', (60, 1, 15, 3), 'row last'),
    ('p', (1, 20, 60, 5), ''),
    ('g', (60, 20, 10, 1), ''),
    ('gc', (60, 1, 30, 3), ''),
    ('e', (20, 0, 5, 1), ''),
    ('a+a', (60, 20, 5, 1), 'row'),
    ('c+c', (60, 1, 15, 3), 'last'),
    ('c+a', (60, 1, 15, 3), 'last'),
    ('a+c', (60, 20, 5, 1), 'row'),
    ('c*2', (60, 1, 15, 3), 'last'),
    ('c.relu()', (60, 1, 15, 3), 'last'),
    ('c.exp()', (60, 1, 15, 3), 'last'),
    ('c+bias', (60, 1, 15, 3), 'last'),
    ('bias+c', (60, 1, 15, 3), 'last'),
    ('c+row', (60, 1, 15, 3), 'last'),
    ('c+s', (60, 1, 15, 3), 'last'),
    ('s+c', (60, 1, 15, 3), 'last'),
    ('c+h', (60, 1, 15, 3), 'last'),
    ('c+hc', (60, 1, 15, 3), 'last'),
    ('h+c', (60, 1, 15, 3), 'last'),
    ('hc+c', (60, 1, 15, 3), 'last'),
    ('c+o', (60, 1, 15, 3), 'last'),
    ('o+c', (60, 1, 15, 3), 'last'),
    ('oc+c', (60, 1, 15, 3), 'last'),
    ('c+oc', (60, 1, 15, 3), 'last'),
    ('c+b1', (60, 1, 15, 3), 'last'),
    ('b1+c', (60, 20, 5, 1), 'row'),
    ('bc+c', (60, 1, 15, 3), 'last'),
    ('a+bc', (60, 20, 5, 1), 'row'),
    ('bc+a', (60, 1, 15, 3), 'last'),
    ('p+p', (1, 20, 60, 5), ''),
    ('p+1', (1, 20, 60, 5), ''),
    ('p.neg()', (1, 20, 60, 5), ''),
    ('g+g', (30, 10, 5, 1), 'row'),
    ('g.neg()', (30, 10, 5, 1), 'row'),
    ('gc.neg()', (30, 1, 15, 3), 'last'),
    ('gc+gc', (30, 1, 15, 3), 'last'),
    ('e+e', (60, 20, 5, 1), 'row'),
    ('e.neg()', (60, 20, 5, 1), 'row'),
    ('e+c', (60, 1, 15, 3), 'last'),
    ('c+e', (60, 1, 15, 3), 'last'),
    ('a+p.permute(2,1,3,0)', (60, 20, 5, 1), 'row'),
    ('c>0', (60, 1, 15, 3), 'last'),
    ('(c>0)&(a>0)', (60, 1, 15, 3), 'last'),
    ('torch.where(c>0,c,a)', (60, 1, 15, 3), 'last'),
    ('torch.where(a>0,c,a)', (60, 20, 5, 1), 'row'),
    ('torch.where(a>0,a,c)', (60, 20, 5, 1), 'row'),
    ('c.clamp(0,1)', (60, 1, 15, 3), 'last'),
    ('torch.maximum(a,c)', (60, 20, 5, 1), 'row'),
    ('torch.lerp(a,c,.5)', (60, 20, 5, 1), 'row'),
    ('torch.addcmul(c,a,a)', (60, 1, 15, 3), 'last'),
    ('c.double()', (60, 1, 15, 3), 'last'),
    ('c.to(torch.float64)', (60, 1, 15, 3), 'last'),
    ('c.round()', (60, 1, 15, 3), 'last'),
    ('c**2', (60, 1, 15, 3), 'last'),
    ('c.mT+c.mT', (60, 1, 3, 15), ''),
    ('c[0]+c[0]', (1, 15, 3), ''),
    ('c[:,0]+1', (20, 5, 1), 'row'),
    ('c[:,:1]+1', (20, 1, 5, 1), 'row last'),
    ('c.transpose(1,3)+1', (60, 3, 15, 1), ''),
    ('w+w', (120, 1, 40, 10, 2), 'last3d'),
    ('w*v', (120, 1, 40, 10, 2), 'last3d'),
    ('v*w', (120, 60, 20, 5, 1), 'row'),
    ('w.relu()', (120, 1, 40, 10, 2), 'last3d'),
    ('oc.neg()', (20, 20, 5, 1), 'row last'),
    ('hc.neg()', (3, 1, 1, 1), 'row last'),
    ('bc.neg()', (60, 1, 15, 3), 'last'),
    ('o.neg()', (20, 20, 5, 1), 'row last'),
    ('torch.nan_to_num(c)', (60, 1, 15, 3), 'last'),
    ('c.atan2(a)', (60, 1, 15, 3), 'last'),
    ('torch.sigmoid(c)', (60, 1, 15, 3), 'last'),
    ('F.gelu(c)', (60, 1, 15, 3), 'last'),
    ('F.silu(c)', (60, 1, 15, 3), 'last'),
    ('F.leaky_relu(c)', (60, 1, 15, 3), 'last'),
    ('F.hardtanh(c)', (60, 1, 15, 3), 'last'),
    ('F.elu(c)', (60, 1, 15, 3), 'last'),
    ('F.softplus(c)', (60, 1, 15, 3), 'last'),
    ('F.dropout(c,.5)', (60, 1, 15, 3), 'last'),
    ('c.clone()', (60, 1, 15, 3), 'last'),
    ('g.clone()', (30, 10, 5, 1), 'row'),
    ('gc.clone()', (30, 1, 15, 3), 'last'),
    ('e.clone()', (60, 20, 5, 1), 'row'),
    ('p.clone()', (1, 20, 60, 5), ''),
    ('oc.clone()', (20, 20, 5, 1), 'row last'),
    ('c.clone(memory_format=CF)', (60, 20, 5, 1), 'row'),
    ('a.clone(memory_format=CL)', (60, 1, 15, 3), 'last'),
    ('a.clone(memory_format=P)', (60, 20, 5, 1), 'row'),
    ('c.clone(memory_format=None)', (60, 1, 15, 3), 'last'),
    ('o.clone(memory_format=CL)', (20, 1, 5, 1), 'row last'),
    ('a.contiguous()', (60, 20, 5, 1), 'row'),
    ('c.contiguous()', (60, 20, 5, 1), 'row'),
    ('c.contiguous(memory_format=CL)', (60, 1, 15, 3), 'last'),
    ('o.contiguous(memory_format=CL)', (20, 20, 5, 1), 'row last'),
    ('v.contiguous(memory_format=C3)', (120, 1, 40, 10, 2), 'last3d'),
    ('gc.contiguous(memory_format=CL)', (30, 1, 15, 3), 'last'),
    ('a.to(memory_format=CL)', (60, 1, 15, 3), 'last'),
    ('c.to(memory_format=CF)', (60, 20, 5, 1), 'row'),
    ('c.to(memory_format=P)', (60, 1, 15, 3), 'last'),
    ('c.to(torch.float64,memory_format=CF)', (60, 20, 5, 1), 'row'),
    ('a.to(torch.float64,memory_format=CL)', (60, 1, 15, 3), 'last'),
    ('o.to(memory_format=CL)', (20, 1, 5, 1), 'row last'),
    ('oc.to(memory_format=CF)', (20, 20, 5, 1), 'row last'),
    ('h.to(memory_format=CL)', (3, 1, 3, 3), 'row last'),
    ('hc.to(memory_format=CF)', (3, 1, 1, 1), 'row last'),
    ('gc.to(torch.float64)', (30, 1, 15, 3), 'last'),
    ('g.to(torch.float64)', (30, 10, 5, 1), 'row'),
    ('e.to(torch.float64)', (60, 20, 5, 1), 'row'),
    ('c.to(torch.float32,copy=True)', (60, 1, 15, 3), 'last'),
    ('gc.to(torch.float32,copy=True)', (30, 1, 15, 3), 'last'),
    ('c.to("meta")', (60, 1, 15, 3), 'last'),
    ('a.to("meta",memory_format=CL)', (60, 1, 15, 3), 'last'),
    ('c.to("cpu")', (60, 1, 15, 3), 'last'),
    ('torch.empty_like(c)', (60, 1, 15, 3), 'last'),
    ('torch.empty_like(g)', (30, 10, 5, 1), 'row'),
    ('torch.empty_like(gc)', (30, 1, 15, 3), 'last'),
    ('torch.empty_like(e)', (60, 20, 5, 1), 'row'),
    ('torch.empty_like(p)', (1, 20, 60, 5), ''),
    ('torch.zeros_like(c)', (60, 1, 15, 3), 'last'),
    ('torch.ones_like(c)', (60, 1, 15, 3), 'last'),
    ('torch.full_like(c,2.)', (60, 1, 15, 3), 'last'),
    ('torch.rand_like(c)', (60, 1, 15, 3), 'last'),
    ('torch.randn_like(c)', (60, 1, 15, 3), 'last'),
    ('torch.zeros_like(c,memory_format=CF)', (60, 20, 5, 1), 'row'),
    ('torch.zeros_like(a,memory_format=CL)', (60, 1, 15, 3), 'last'),
    ('torch.empty_like(a,memory_format=CL)', (60, 1, 15, 3), 'last'),
    ('torch.rand_like(a,memory_format=CL)', (60, 1, 15, 3), 'last'),
    ('torch.empty((2,3,4,5),memory_format=CL)', (60, 1, 15, 3), 'last'),
    ('torch.empty(2,3,4,5,memory_format=CL)', (60, 1, 15, 3), 'last'),
    ('torch.empty((2,2,3,4,5),memory_format=C3)', (120, 1, 40, 10, 2), 'last3d'),
    ('torch.empty((2,3,4,5),memory_format=CF)', (60, 20, 5, 1), 'row'),
    ('torch.zeros_like(w)', (120, 1, 40, 10, 2), 'last3d'),
    ('torch.ones_like(p)', (1, 20, 60, 5), ''),
    ('c.new_zeros(2,3,4,5)', (60, 20, 5, 1), 'row'),
    ('c.new_empty(2,3)', (3, 1), 'row'),
    ('torch.randint_like(c,5)', (60, 1, 15, 3), 'last'),
    ('F.conv2d(c,k)', (24, 1, 12, 4), 'last'),
    ('F.conv2d(a,k)', (24, 6, 3, 1), 'row'),
    ('F.conv2d(c,kc)', (24, 1, 12, 4), 'last'),
    ('F.conv2d(a,kc)', (24, 1, 12, 4), 'last'),
    ('F.conv2d(c,k,padding=1)', (80, 1, 20, 4), 'last'),
    ('F.conv2d(oc,torch.rand(4,1,3,3))', (24, 6, 3, 1), 'row'),
    ('F.conv2d(c,torch.rand(4,3,1,1))', (80, 1, 20, 4), 'last'),
    ('F.conv2d(c[:,:,:1,:1],torch.rand(4,3,1,1))', (4, 1, 4, 4), 'row last'),
    ('F.conv2d(c,torch.rand(3,1,3,3),groups=3)', (18, 1, 9, 3), 'last'),
    ('F.conv3d(w,k3)', (24, 1, 24, 12, 4), 'last3d'),
    ('F.conv3d(v,k3)', (24, 6, 6, 3, 1), 'row'),
    ('F.conv_transpose2d(c,torch.rand(3,4,3,3))', (168, 1, 28, 4), 'last'),
    ('F.conv2d(p,torch.rand(4,3,1,1))', (32, 8, 4, 1), 'row'),
    ('F.max_pool2d(c,2)', (12, 1, 6, 3), 'last'),
    ('F.max_pool2d(a,2)', (12, 4, 2, 1), 'row'),
    ('F.avg_pool2d(c,2)', (12, 1, 6, 3), 'last'),
    ('F.adaptive_avg_pool2d(c,2)', (12, 1, 6, 3), 'last'),
    ('F.adaptive_avg_pool2d(c,1)', (3, 1, 3, 3), 'row last'),
    ('F.adaptive_max_pool2d(c,2)', (12, 1, 6, 3), 'last'),
    ('F.max_pool3d(w,2)', (8, 1, 8, 4, 2), 'last3d'),
    ('F.avg_pool3d(w,2)', (8, 4, 4, 2, 1), 'row'),
    ('F.adaptive_avg_pool3d(w,2)', (16, 8, 4, 2, 1), 'row'),
    ('F.adaptive_max_pool3d(w,2)', (16, 8, 4, 2, 1), 'row'),
    ('F.max_pool2d(c,2,return_indices=True)[1]', (12, 1, 6, 3), 'last'),
    ('F.batch_norm(c,m,mv)', (60, 1, 15, 3), 'last'),
    ('F.batch_norm(c,m,mv,training=True)', (60, 1, 15, 3), 'last'),
    ('F.batch_norm(w,torch.zeros(2),torch.ones(2))', (120, 1, 40, 10, 2), 'last3d'),
    ('F.batch_norm(w,torch.zeros(2),torch.ones(2),training=True)', (120, 1, 40, 10, 2), 'last3d'),
    ('F.group_norm(c,3)', (60, 1, 15, 3), 'last'),
    ('F.layer_norm(c,(5,))', (60, 20, 5, 1), 'row'),
    ('c.softmax(1)', (60, 20, 5, 1), 'row'),
    ('c.sum(1,keepdim=True)', (20, 20, 5, 1), 'row last'),
    ('c.mean((2,3),keepdim=True)', (3, 1, 1, 1), 'row last'),
    ('c.cumsum(1)', (60, 20, 5, 1), 'row'),
    ('torch.cat([c,c])', (60, 1, 15, 3), 'last'),
    ('torch.cat([c,c],1)', (120, 1, 30, 6), 'last'),
    ('torch.cat([a,c],1)', (120, 20, 5, 1), 'row'),
    ('F.pad(c,(1,1,1,1))', (126, 1, 21, 3), 'last'),
    ('c.flip(2)', (60, 1, 15, 3), 'last'),
    ('c.tril()', (60, 20, 5, 1), 'row'),
    ('c.unsqueeze(0)', (120, 60, 1, 15, 3), ''),
    ('c.expand(2,2,3,4,5)', (0, 60, 1, 15, 3), ''),
    ('c[:, :, 1:]', (60, 1, 15, 3), ''),
    ('c.detach()', (60, 1, 15, 3), 'last'),
    ('c.reshape(2,3,20)', (60, 1, 3), ''),
    ('c.flatten(1)', (60, 1), 'row'),
    ('c.index_select(0,torch.tensor([0,1]))', (60, 20, 5, 1), 'row'),
    ('c.repeat(1,1,1,1)', (60, 20, 5, 1), 'row'),
]  # fmt: skip


def operands():
    """The tensors that the calls name."""
    a, v = rabbet.rand(2, 3, 4, 5), rabbet.rand(2, 2, 3, 4, 5)
    o, h, b1 = rabbet.rand(2, 1, 4, 5), rabbet.rand(2, 3, 1, 1), rabbet.rand(1, 3, 4, 5)
    k = rabbet.rand(4, 3, 3, 3)
    c = a.contiguous(memory_format=CL)
    return {
        "torch": rabbet, "F": F, "CL": CL, "C3": C3, "P": P, "CF": CF,
        "a": a, "c": c, "v": v, "w": v.contiguous(memory_format=C3),
        "o": o, "oc": o.contiguous(memory_format=CL), "h": h, "hc": h.contiguous(memory_format=CL),
        "b1": b1, "bc": b1.contiguous(memory_format=CL), "bias": rabbet.rand(3, 1, 1),
        "row": rabbet.rand(5), "s": rabbet.tensor(2.0), "p": a.permute(3, 1, 0, 2),
        "g": a[:, :, ::2], "gc": c[:, :, ::2], "e": rabbet.rand(2, 1, 4, 5).expand(2, 3, 4, 5),
        "k": k, "kc": k.contiguous(memory_format=CL), "k3": rabbet.rand(4, 2, 3, 3, 3),
        "z": rabbet.empty(0, 3, 4, 5), "m": rabbet.zeros(3), "mv": rabbet.ones(3),
    }  # fmt: skip


@pytest.mark.parametrize(("call", "strides", "formats"), STRIDES, ids=[s[0] for s in STRIDES])
def test_strides_are_those_of_torch(call, strides, formats):
    out = eval(call, operands())
    assert out.stride() == strides
    found = {"row": out.is_contiguous(), "last": out.is_contiguous(memory_format=CL),
             "last3d": out.is_contiguous(memory_format=C3)}  # fmt: skip
    assert {name for name, is_so in found.items() if is_so} == set(formats.split())


ROW_MAJOR = [
    call
    for call, _, _ in STRIDES
    if "rand" not in call and "empty" not in call and "dropout" not in call and "meta" not in call
]


@pytest.mark.parametrize("call", ROW_MAJOR)
def test_values_do_not_depend_on_the_layout(call):
    given = operands()
    rows = {n: t.contiguous() if isinstance(t, rabbet.Tensor) else t for n, t in given.items()}
    out, expected = eval(call, given), eval(call, rows)
    assert rabbet.allclose(out.double(), expected.double(), rtol=1e-5, atol=1e-6)


# Of a leaf in channels_last; the gradient lies as the leaf does.
GRADIENTS = {
    "relu": (rabbet.relu, "c"),
    "mul": (lambda t: t * 2, "c"),
    "conv": (lambda t: F.conv2d(t, rabbet.ones(4, 3, 3, 3)), "c"),
    "max_pool": (lambda t: F.max_pool2d(t, 2), "c"),
    "avg_pool": (lambda t: F.avg_pool2d(t, 2), "c"),
    "adaptive_avg_pool": (lambda t: F.adaptive_avg_pool2d(t, 2), "c"),
    "batch_norm": (lambda t: F.batch_norm(t, None, None, training=True), "c"),
    "weight": (lambda t: F.conv2d(rabbet.ones(2, 3, 5, 5), t), "kc"),
    "sum": (lambda t: t.sum(), "c"),
    "conv3d": (lambda t: F.conv3d(t, rabbet.ones(4, 2, 3, 3, 3)), "w"),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_lies_as_its_leaf_does(name):
    f, operand = GRADIENTS[name]
    x = operands()[operand].clone().requires_grad_()
    assert not x.is_contiguous()
    y = f(x)
    weights = rabbet.rand(y.shape)
    y.backward(weights)
    assert x.grad.stride() == x.stride()
    rows = x.detach().contiguous().requires_grad_()
    f(rows).backward(weights)
    assert rows.grad.is_contiguous()
    assert rabbet.allclose(x.grad, rows.grad, rtol=1e-4, atol=1e-5)
    f(x).backward(weights)
    assert x.grad.stride() == x.stride()
    assert rabbet.allclose(x.grad, 2 * rows.grad, rtol=1e-4, atol=1e-5)


def test_a_module_goes_to_channels_last():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    x = rabbet.rand(2, 3, 8, 8)
    expected = model.eval()(x)
    assert model.to(memory_format=CL) is model
    assert model[0].weight.is_contiguous(memory_format=CL)
    assert model[0].bias.is_contiguous()
    out = model(x.to(memory_format=CL))
    assert out.is_contiguous(memory_format=CL)
    assert rabbet.allclose(out, expected, rtol=1e-4, atol=1e-5)
    model.train()(x.to(memory_format=CL)).sum().backward()
    assert model[0].weight.grad.is_contiguous(memory_format=CL)


def test_formats_inside_vmap_are_those_of_one_example():
    x = rabbet.rand(6, 2, 3, 4, 5)
    inside = []

    def f(t):
        last = t.contiguous(memory_format=CL)
        inside.append((last.shape, last.is_contiguous(memory_format=CL)))
        return last * 2

    assert rabbet.equal(rabbet.vmap(f)(x), x * 2)
    assert inside == [(rabbet.Size([2, 3, 4, 5]), True)]


def test_a_format_has_a_gradient():
    x = rabbet.rand(2, 3, 4, 5, dtype=rabbet.float64).requires_grad_()
    for f in (lambda t: t.contiguous(memory_format=CL), lambda t: t.to(memory_format=CL),
              lambda t: t.clone(memory_format=CL)):  # fmt: skip
        assert rabbet.autograd.gradcheck(lambda t, f=f: f(t) * t, x)


def test_the_tensor_itself_where_nothing_changes():
    c = rabbet.rand(2, 3, 4, 5).contiguous(memory_format=CL)
    assert c.contiguous(memory_format=CL) is c
    assert c.to(memory_format=CL) is c
    assert c.to(memory_format=P) is c
    assert c.to(rabbet.float32) is c
    assert c.to(memory_format=CL, copy=True) is not c
    assert c.contiguous() is not c


WRONG = [
    ("x.to(memory_format='garbage')", TypeError, "must be rabbet.memory_format, not str"),
    ("x.clone(memory_format=3)", TypeError, r"clone\(\): argument 'memory_format' must be"),
    ("x.contiguous(memory_format=rabbet.float32)", TypeError, "not rabbet.dtype|not dtype"),
    ("x.is_contiguous(memory_format='x')", TypeError, "not str"),
    ("x.is_contiguous(format=CL)", TypeError, "unexpected keyword argument 'format'"),
    ("x.is_contiguous(CL)", TypeError, "one keyword argument"),
    ("x.contiguous(memory_format=P)", RuntimeError, "preserve_format is not supported"),
    ("rabbet.empty(2, 3, memory_format=P)", RuntimeError, "preserve_format is not supported"),
    ("x.contiguous(memory_format=CL)", RuntimeError, r"required rank 4 tensor .* shape \(2, 3, 4\)"),
    ("x.to(memory_format=C3)", RuntimeError, "required rank 5 tensor to use channels_last_3d"),
    ("x.to(rabbet.float64, memory_format=CL)", RuntimeError, "required rank 4 tensor"),
    ("rabbet.empty(2, 3, memory_format=CL)", RuntimeError, "empty: required rank 4|required rank 4"),
    ("rabbet.zeros_like(x, memory_format=CL)", RuntimeError, "required rank 4 tensor"),
    ("rabbet.zeros(2, 3, memory_format=CL)", TypeError, "memory_format"),
    ("rabbet.relu(x, memory_format=CL)", TypeError, "memory_format"),
    ("nn.Linear(2, 3).to(memory_format='x')", TypeError, "expected a rabbet.memory_format"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), WRONG, ids=[w[0] for w in WRONG])
def test_what_is_not_supported_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        eval(
            call,
            {"rabbet": rabbet, "nn": nn, "CL": CL, "C3": C3, "P": P, "x": rabbet.rand(2, 3, 4)},
        )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("layout  nowhere(x)", "layout: expected arguments, or like"),
        ("layout  channels(y)", "layout"),
        ("memory_format maybe", "memory_format: expected result or itself"),
        ("itself  complex", "itself: expected real"),
    ],
)
def test_wrong_fields_of_records_are_refused(line, message):
    with pytest.raises(rabbet.PluginError, match=message):
        rabbet.library.register_records(
            f"wrong(Tensor x) -> Tensor\n  kind elementwise\n  {line}\n"
        )
