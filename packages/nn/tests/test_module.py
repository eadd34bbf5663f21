"""Module: registration, traversal, conversion, copies, text."""

import copy
import io
import pickle
import time

import numpy as np
import pytest
import rabbet
from rabbet import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.scale = nn.Parameter(rabbet.ones(3))
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(3, 2, bias=False))
        self.register_buffer("offset", rabbet.zeros(2))
        self.register_buffer("cache", rabbet.zeros(1), persistent=False)
        self.width = 3

    def forward(self, x):
        return self.rest(self.norm(self.first(x)) * self.scale) + self.offset


NAMES = ["scale", "first.weight", "first.bias", "norm.weight", "norm.bias", "rest.1.weight"]
BUFFERS = ["offset", "cache", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]


def test_traversal_is_in_order_of_registration():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == NAMES
    assert [n for n, _ in net.named_buffers()] == BUFFERS
    assert [n for n, _ in net.named_modules()] == ["", "first", "norm", "rest", "rest.0", "rest.1"]
    assert [n for n, _ in net.named_children()] == ["first", "norm", "rest"]
    assert [n for n, _ in net.named_parameters("net", recurse=False)] == ["net.scale"]
    assert len(list(net.parameters())) == 6 and len(list(net.buffers())) == 5
    assert list(net.children()) == [net.first, net.norm, net.rest]


def test_shared_parts_are_found_once_unless_asked():
    shared = nn.Linear(2, 2)
    net = nn.Sequential(shared, shared)
    assert [n for n, _ in net.named_parameters()] == ["0.weight", "0.bias"]
    every = [n for n, _ in net.named_parameters(remove_duplicate=False)]
    assert every == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert len(list(net.modules())) == 2
    assert len(list(net.named_modules(remove_duplicate=False))) == 3


def test_attributes_move_between_kinds():
    net = nn.Module()
    net.x = 1
    net.x = nn.Parameter(rabbet.ones(2))
    assert "x" in net._parameters and "x" not in net.__dict__
    net.x = None
    assert net.x is None and "x" in net._parameters
    del net.x
    net.x = nn.Linear(1, 1)
    assert "x" in net._modules
    net.x = nn.Parameter(rabbet.ones(2))
    assert "x" not in net._modules and isinstance(net.x, nn.Parameter)
    with pytest.raises(TypeError, match=r"cannot assign 'Tensor' as parameter 'x'"):
        net.x = rabbet.ones(2)
    net.b = nn.Buffer(rabbet.ones(2), persistent=False)
    assert "b" in net._buffers and list(net.state_dict()) == ["x"]
    net.b = rabbet.zeros(2)
    assert net._buffers["b"].sum() == 0
    with pytest.raises(TypeError, match="as buffer 'b'"):
        net.b = 3
    assert "x" in dir(net) and "b" in dir(net)
    with pytest.raises(AttributeError, match="'Module' object has no attribute 'y'"):
        _ = net.y


BAD_REGISTRATIONS = [
    (lambda m: m.register_parameter("a.b", None), KeyError, "can't contain"),
    (lambda m: m.register_parameter("", None), KeyError, "can't be empty"),
    (lambda m: m.register_parameter("forward", None), KeyError, "already exists"),
    (lambda m: m.register_parameter(3, None), TypeError, "should be a string"),
    (
        lambda m: m.register_parameter("p", rabbet.ones(1)),
        TypeError,
        "nn.Parameter or None required",
    ),
    (lambda m: m.register_buffer("b", 3), TypeError, "Tensor or None required"),
    (lambda m: m.register_buffer("first", None), KeyError, "already exists"),
    (lambda m: m.add_module("m", 3), TypeError, "not a Module subclass"),
    (lambda m: m.register_module("m.n", nn.ReLU()), KeyError, "can't contain"),
    (lambda m: setattr(m, "first", 3), TypeError, "as child module 'first'"),
    (lambda m: m.train("yes"), ValueError, "boolean"),
    (lambda m: m.to(rabbet.int64), TypeError, "only accepts floating point"),
    (lambda m: m.to(3.5), TypeError, "expected a device, a dtype or a Tensor"),
    (lambda m: m.to(colour="red"), TypeError, "unexpected keyword argument 'colour'"),
    (lambda m: m.get_submodule("first.weight"), AttributeError, "is not an nn.Module"),
    (lambda m: m.get_submodule("second"), AttributeError, "has no attribute `second`"),
    (lambda m: m.get_parameter("offset"), AttributeError, "is not an nn.Parameter"),
    (lambda m: m.get_buffer("scale"), AttributeError, "is not a buffer"),
    (lambda m: m.register_forward_hook(3), TypeError, "callable"),
    (lambda m: nn.Module(3), TypeError, "takes no arguments"),
    (lambda m: nn.Module()(), NotImplementedError, "forward"),
    (lambda m: nn.Parameter(3), TypeError, "expected `data` to be a Tensor"),
]


@pytest.mark.parametrize("i", range(len(BAD_REGISTRATIONS)))
def test_bad_use_is_refused_clearly(i):
    act, error, text = BAD_REGISTRATIONS[i]
    with pytest.raises(error) as caught:
        act(Net())
    assert text in str(caught.value.args[0])


def test_assignment_before_init_is_refused():
    class Early(nn.Module):
        def __init__(self, value):
            self.value = value

    for value in (nn.Parameter(rabbet.ones(1)), nn.ReLU(), nn.Buffer(rabbet.ones(1))):
        with pytest.raises(AttributeError, match=r"before Module.__init__\(\) call"):
            Early(value)


def test_a_computed_tensor_is_not_made_a_parameter_silently():
    made = nn.Parameter(rabbet.ones(2))
    assert made.is_leaf and made.requires_grad
    computed = made * 2
    again = nn.Parameter(computed)
    assert again.is_leaf and again.grad_fn is None


def test_paths_find_parts():
    net = Net()
    assert net.get_submodule("") is net
    assert net.get_submodule("rest.1") is net.rest[1]
    assert net.get_parameter("rest.1.weight") is net.rest[1].weight
    assert net.get_buffer("norm.running_mean") is net.norm.running_mean
    net.set_submodule("rest.0", nn.Tanh())
    assert isinstance(net.rest[0], nn.Tanh)
    with pytest.raises(ValueError, match="target name"):
        net.set_submodule("", nn.Tanh())


def test_apply_train_and_zero_grad_reach_every_part():
    net = Net()
    seen = []
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Linear", "BatchNorm1d", "ReLU", "Linear", "Sequential", "Net"]
    assert net.eval() is net and not any(m.training for m in net.modules())
    assert net.train().norm.training
    net(rabbet.randn(5, 4)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_conversion_keeps_parameters_and_casts_floats_only():
    net = Net()
    before = list(net.parameters())
    net(rabbet.randn(5, 4)).sum().backward()
    assert net.double() is net
    assert all(a is b for a, b in zip(before, net.parameters(), strict=True))
    assert {p.dtype for p in net.parameters()} == {rabbet.float64}
    assert {p.grad.dtype for p in net.parameters()} == {rabbet.float64}
    assert net.norm.running_mean.dtype == rabbet.float64
    assert net.norm.num_batches_tracked.dtype == rabbet.int64
    assert all(p.is_leaf and p.requires_grad for p in net.parameters())
    net(rabbet.randn(5, 4, dtype=rabbet.float64)).sum().backward()
    for convert, dtype in [
        (net.half, rabbet.float16),
        (net.bfloat16, rabbet.bfloat16),
        (net.float, rabbet.float32),
        (lambda: net.to(rabbet.float64), rabbet.float64),
        (lambda: net.to("cpu", rabbet.float32), rabbet.float32),
        (lambda: net.to(rabbet.zeros(1, dtype=rabbet.float64)), rabbet.float64),
        (lambda: net.type(rabbet.float32), rabbet.float32),
    ]:
        assert convert() is net
        assert net.scale.dtype == dtype
    meta = Net().to("meta")
    assert {p.device.type for p in meta.parameters()} == {"meta"}
    assert meta(rabbet.empty(5, 4, device="meta")).shape == (5, 2)
    assert {p.device.type for p in meta.to_empty(device="cpu").parameters()} == {"cpu"}


def test_parameters_keep_their_class_through_copies():
    p = nn.Parameter(rabbet.tensor([1.0, 2.0]), requires_grad=False)
    for q in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(q) is nn.Parameter and q.tolist() == [1.0, 2.0] and not q.requires_grad
    assert repr(p).startswith("Parameter containing:\ntensor([1., 2.]")
    assert type(p + 1) is rabbet.Tensor and type(p.detach()) is rabbet.Tensor
    q = nn.Parameter(p)
    q.detach().fill_(5)
    assert p.tolist() == [5.0, 5.0]
    assert nn.Parameter().numel() == 0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_whole_and_apart(copied):
    shared = nn.Linear(3, 3)
    net = nn.Sequential(shared, nn.BatchNorm1d(3), shared)
    x = rabbet.randn(4, 3)
    net(x)
    twin = copied(net)
    net.eval(), twin.eval()
    assert rabbet.equal(net(x), twin(x))
    assert twin[0] is twin[2] and twin[0] is not net[0]
    assert type(twin[0].weight) is nn.Parameter
    with rabbet.no_grad():
        twin[0].weight.zero_()
    assert net[0].weight.any()


def test_save_and_load_of_a_state_dict(tmp_path):
    net = Net()
    rabbet.save(net.state_dict(), tmp_path / "net.safetensors")
    other = Net()
    other.load_state_dict(rabbet.load(tmp_path / "net.safetensors"))
    for key, value in net.state_dict().items():
        assert rabbet.equal(value, other.state_dict()[key])


def test_parameters_come_back_from_files_as_parameters(tmp_path):
    net = Net()
    first = next(iter(net.parameters()))
    first.requires_grad = False
    first.note = "frozen"
    buffer = nn.Buffer(rabbet.ones(2), persistent=False)
    value = {"net": dict(net.named_parameters()), "tied": first, "buffer": buffer}
    rabbet.save(value, tmp_path / "net")
    got = rabbet.load(tmp_path / "net")
    assert list(got["net"]) == list(value["net"])
    for name, p in value["net"].items():
        q = got["net"][name]
        assert type(q) is nn.Parameter and q.is_leaf and rabbet.equal(p, q)
        assert q.requires_grad is (p is not first)
    assert got["tied"] is next(iter(got["net"].values())) and got["tied"].note == "frozen"
    assert type(got["buffer"]) is nn.Buffer and got["buffer"].persistent is False


def test_a_state_dict_is_an_ordinary_safetensors_file(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    net = Net()
    rabbet.save(net.state_dict(), tmp_path / "net")
    theirs = safetensors.load_file(tmp_path / "net")
    assert {k: v.tolist() for k, v in theirs.items()} == {
        k: v.tolist() for k, v in net.state_dict().items()
    }


def test_repr_shows_parts():
    class Shown(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = nn.Sequential(nn.ReLU())

        def extra_repr(self):
            return "a=1\nb=2"

        def forward(self, x):
            return x

    assert repr(Shown()) == "Shown(\n  a=1\n  b=2\n  (part): Sequential(\n    (0): ReLU()\n  )\n)"
    assert repr(nn.ReLU()) == "ReLU()"


def test_a_call_without_hooks_costs_little():
    module, x = nn.Identity(), rabbet.zeros(1)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(1000):
            module(x)
        times.append(time.perf_counter() - start)
    assert min(times) / 1000 < 2e-6  # measured 0.3 us; the limit leaves room for slow machines


def test_weights_start_as_pytorch_starts_them():
    layer = nn.Linear(400, 300)
    bound = 1 / 20
    for values in (layer.weight.detach().numpy(), layer.bias.detach().numpy()):
        assert abs(values).max() <= bound and abs(values).max() > 0.98 * bound
        assert abs(values.std() - bound / np.sqrt(3)) < 0.1 * bound
    conv = nn.Conv2d(16, 32, 3).weight.detach().numpy()
    assert abs(conv).max() <= 1 / 12 and abs(conv).max() > 0.95 / 12
    table = nn.Embedding(500, 40, padding_idx=3).weight.detach().numpy()
    assert abs(table.std() - 1) < 0.05 and not table[3].any()
    attention = nn.MultiheadAttention(64, 4)
    assert not attention.in_proj_bias.any() and not attention.out_proj.bias.any()
    rabbet.manual_seed(5)
    a = nn.Linear(3, 3).weight
    rabbet.manual_seed(5)
    assert rabbet.equal(a, nn.Linear(3, 3).weight)


def test_plain_tensors_may_replace_parameters():
    layer = nn.Linear(2, 2)
    del layer.weight
    layer.weight = rabbet.eye(2)
    layer.bias = None
    assert layer(rabbet.tensor([[1.0, 2.0]])).tolist() == [[1.0, 2.0]]


BAD_LAYERS = [
    (lambda: nn.Conv2d(3, 4, 3, groups=2), ValueError, "in_channels must be divisible"),
    (lambda: nn.Conv2d(4, 3, 3, groups=2), ValueError, "out_channels must be divisible"),
    (lambda: nn.Conv2d(4, 4, 3, groups=0), ValueError, "positive integer"),
    (lambda: nn.Conv2d(4, 4, (3, 3, 3)), ValueError, "kernel_size to be an int or 2 ints"),
    (lambda: nn.Conv2d(4, 4, 3, padding="all"), ValueError, "Invalid padding string"),
    (lambda: nn.Conv2d(4, 4, 3, 2, padding="same"), ValueError, "strided"),
    (lambda: nn.Conv2d(4, 4, 3, padding_mode="mirror"), ValueError, "padding_mode must be one of"),
    (lambda: nn.ConvTranspose2d(4, 4, 3, padding_mode="reflect"), ValueError, 'Only "zeros"'),
    (
        lambda: nn.ConvTranspose2d(1, 1, 3)(rabbet.zeros(1, 1, 2, 2), [9, 9]),
        ValueError,
        "allows 4 to 4",
    ),
    (lambda: nn.Embedding(3, 2, padding_idx=3), ValueError, "Padding_idx must be within"),
    (lambda: nn.Embedding(3, 2, sparse=True), NotImplementedError, "sparse"),
    (lambda: nn.Embedding.from_pretrained(rabbet.zeros(3)), ValueError, "2-dimensional"),
    (lambda: nn.Embedding(3, 2, _weight=rabbet.zeros(2, 2)), ValueError, "Shape of weight"),
    (
        lambda: nn.BatchNorm1d(3)(rabbet.zeros(1, 3, 2, 2)),
        ValueError,
        "expected 2D or 3D input (got 4D input)",
    ),
    (lambda: nn.GroupNorm(2, 3), ValueError, "must be divisible by num_groups"),
    (lambda: nn.Dropout(-0.1), ValueError, "between 0 and 1, but got -0.1"),
    (lambda: nn.GELU("fast"), ValueError, "'none' or 'tanh'"),
    (lambda: nn.Hardtanh(1.0, 0.0), ValueError, "max_val must be larger"),
    (lambda: nn.Bilinear(0, 1, 1), ValueError, "in1_features must be > 0"),
    (lambda: nn.Unflatten(1, 3), TypeError, "tuple of ints"),
    (lambda: nn.Unflatten("x", (3,)), TypeError, "dim"),
    (lambda: nn.ZeroPad2d((1, 2)), ValueError, "an int or 4 ints"),
    (lambda: nn.MultiheadAttention(6, 4), ValueError, "divisible by num_heads"),
    (lambda: nn.MultiheadAttention(0, 1), ValueError, "greater than 0"),
    (
        lambda: nn.MultiheadAttention(4, 2)(*[rabbet.zeros(2, 3, 5)] * 3),
        AssertionError,
        "embedding dimension of 4",
    ),
    (
        lambda: nn.MultiheadAttention(4, 2)(*[rabbet.zeros(4)] * 3),
        AssertionError,
        "unbatched 2D or batched 3D",
    ),
    (
        lambda: nn.MultiheadAttention(4, 2)(
            *[rabbet.zeros(2, 3, 4)] * 3, attn_mask=rabbet.zeros(3, 3)
        ),
        RuntimeError,
        "should be (2, 2)",
    ),
    (
        lambda: nn.MultiheadAttention(4, 2)(*[rabbet.zeros(2, 3, 4)] * 3, is_causal=True),
        RuntimeError,
        "Need attn_mask",
    ),
    (
        lambda: nn.TransformerEncoderLayer(4, 2, activation="sin"),
        RuntimeError,
        "relu/gelu, not sin",
    ),
    (
        lambda: nn.CrossEntropyLoss(reduction="avg")(rabbet.zeros(1, 2), rabbet.tensor([0])),
        ValueError,
        "avg",
    ),
]


@pytest.mark.parametrize("i", range(len(BAD_LAYERS)))
def test_bad_layers_are_refused_clearly(i):
    act, error, text = BAD_LAYERS[i]
    with pytest.raises(error) as caught:
        act()
    assert text in str(caught.value.args[0])


def test_pickling_goes_through_a_file():
    buffer = io.BytesIO()
    pickle.dump(nn.Linear(2, 2), buffer)
    buffer.seek(0)
    assert isinstance(pickle.load(buffer), nn.Linear)


class _Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 3))])

    def forward(self, x):
        return self.layers[0](x)


def test_errors_in_forward_name_the_module():
    with pytest.raises(Exception) as caught:
        nn.Sequential(_Stack())(rabbet.ones(2, 3))
    assert caught.value.__notes__ == ["in forward of Sequential.0.layers.0.1 (Linear)"]
    with pytest.raises(Exception) as caught:
        nn.Linear(4, 3)(rabbet.ones(2, 3))
    assert caught.value.__notes__ == ["in forward of Linear (Linear)"]


def test_compile_replaces_what_a_call_does(monkeypatch):
    calls = []

    def compiler(call, **options):
        def compiled(*args):
            calls.append(options)
            return call(*args)

        return compiled

    module = nn.Linear(2, 2)
    monkeypatch.setattr(rabbet, "compile", lambda call, **options: call)  # nothing to compile with
    assert module.compile() is None and module._compiled_call_impl is None
    monkeypatch.setattr(rabbet, "compile", compiler)
    assert module.compile(mode="default") is None
    module.register_forward_hook(lambda module, args, made: calls.append("hook"))
    made = module(rabbet.ones(1, 2))
    assert calls == [{"mode": "default"}, "hook"] and made.shape == (1, 2)
    other = copy.deepcopy(module)  # runs eagerly, as in PyTorch
    assert other._compiled_call_impl is None and other(rabbet.ones(1, 2)).shape == (1, 2)
    assert calls == [{"mode": "default"}, "hook", "hook"]


def test_private_names_that_packages_import():
    from rabbet.nn.modules.activation import MultiheadAttention
    from rabbet.nn.modules.batchnorm import _BatchNorm
    from rabbet.nn.modules.conv import _ConvNd, _ConvTransposeNd
    from rabbet.nn.modules.loss import _Loss
    from rabbet.nn.modules.module import _IncompatibleKeys
    from rabbet.nn.modules.utils import _pair, _reverse_repeat_tuple

    assert issubclass(nn.BatchNorm2d, _BatchNorm) and issubclass(nn.Conv2d, _ConvNd)
    assert issubclass(nn.ConvTranspose1d, _ConvTransposeNd) and issubclass(nn.MSELoss, _Loss)
    assert MultiheadAttention is nn.MultiheadAttention
    assert isinstance(nn.Linear(2, 2).load_state_dict({}, strict=False), _IncompatibleKeys)
    assert _pair(3) == (3, 3) and _reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)


def test_consume_prefix():
    state = nn.Sequential(nn.Linear(2, 2)).state_dict(prefix="module.")
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    assert list(state) == ["0.weight", "0.bias"] and list(state._metadata) == ["", "0"]


def test_sync_batch_norm_replaces_batch_norm():
    model = nn.Sequential(nn.Conv1d(3, 4, 2), nn.Sequential(nn.BatchNorm1d(4)))
    x = rabbet.rand(2, 3, 5)
    expected = model.eval()(x).tolist()
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert type(synced[1][0]) is nn.SyncBatchNorm and not synced[1][0].training
    assert synced(x).tolist() == expected
    assert list(synced.state_dict()) == list(model.state_dict())
    with pytest.raises(ValueError, match="at least 2D"):
        nn.SyncBatchNorm(3)(rabbet.ones(3))


def test_share_memory_moves_parameters_and_buffers():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    weight = model[0].weight
    before = {name: t.clone() for name, t in model.state_dict().items()}
    assert model.share_memory() is model and model[0].weight is weight
    assert all(t.is_shared() for t in (*model.parameters(), *model.buffers()))
    assert all(rabbet.equal(t, before[name]) for name, t in model.state_dict().items())
    model(rabbet.ones(4, 2)).sum().backward()
    assert weight.grad.shape == (3, 2)


# ---- properties that fail


class Failing(nn.Module):
    """A module whose properties look for what is not there."""

    @property
    def width(self):
        return self.linear.no_such_thing

    @property
    def of_another_type(self):
        return {}.no_such_method

    @property
    def broken(self):
        raise ValueError("broken")

    @property
    def outer(self):
        return self.width


@pytest.mark.parametrize(
    "name,message",
    [
        ("width", "'Failing' object has no attribute 'linear'"),
        ("outer", "'Failing' object has no attribute 'linear'"),
        ("of_another_type", "'dict' object has no attribute 'no_such_method'"),
        ("missing", "'Failing' object has no attribute 'missing'"),
    ],
)
def test_the_error_of_a_property_names_what_is_missing_inside(name, message):
    module = Failing()
    with pytest.raises(AttributeError, match=message):
        getattr(module, name)
    assert not hasattr(module, name) and getattr(module, name, 5) == 5
    with pytest.raises(ValueError, match="broken"):
        module.broken  # noqa: B018


def test_a_property_finds_what_the_module_holds():
    module = Failing()
    module.linear = nn.Linear(2, 3)
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'no_such_thing'"):
        module.width  # noqa: B018
    module.linear.no_such_thing = 7
    assert module.outer == 7


IMAGE = rabbet.ones(1, 2, 4, 4)
REPLACEABLE = {
    "relu": (nn.ReLU(), IMAGE), "gelu": (nn.GELU(), IMAGE), "silu": (nn.SiLU(), IMAGE),
    "linear": (nn.Linear(4, 2), IMAGE), "conv2d": (nn.Conv2d(2, 2, 3), IMAGE),
    "conv_transpose2d": (nn.ConvTranspose2d(2, 2, 3), IMAGE), "max_pool2d": (nn.MaxPool2d(2), IMAGE),
    "avg_pool2d": (nn.AvgPool2d(2), IMAGE), "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d(2), IMAGE),
    "adaptive_max_pool2d": (nn.AdaptiveMaxPool2d(2), IMAGE), "lp_pool2d": (nn.LPPool2d(2, 2), IMAGE),
    "batch_norm": (nn.BatchNorm2d(2), IMAGE), "layer_norm": (nn.LayerNorm(4), IMAGE),
    "group_norm": (nn.GroupNorm(2, 2), IMAGE), "softmax": (nn.Softmax(-1), IMAGE), "dropout": (nn.Dropout(), IMAGE),
    "embedding": (nn.Embedding(3, 2), rabbet.tensor([0, 2])), "interpolate": (nn.Upsample(scale_factor=2), IMAGE),
}  # fmt: skip


@pytest.mark.parametrize("name", REPLACEABLE)
def test_layers_call_the_function_that_a_package_has_put_in_place(name, monkeypatch):
    """Packages that count operations replace functions of `nn.functional`."""
    plain, calls = getattr(nn.functional, name), []

    def counted(*args, **kwargs):
        calls.append(name)
        return plain(*args, **kwargs)

    module, x = REPLACEABLE[name]
    expected = module.eval()(x)
    monkeypatch.setattr(nn.functional, name, counted)
    assert rabbet.equal(module(x), expected) and calls == [name]
