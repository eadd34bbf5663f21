"""rabbet.export: the names and files of torch.export, on rabbet's graphs."""

import io

import pytest
import rabbet
from rabbet import nn
from rabbet.export import Dim, ExportedProgram, dims, export, load, save
from rabbet.export.graph_signature import InputKind
from rabbet.graph import CaptureError, InputError


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("scale", rabbet.full((8,), 2.0), persistent=False)
        self.shift = rabbet.ones(8)

    def forward(self, x, *, twice=False, pair=None):
        y = self.norm(self.first(x)) * self.scale + self.shift
        if twice:
            y = y * 2
        return {"y": y, "pair": pair, "rows": x.shape[0]}


def test_a_program_runs_as_the_module_does():
    model = Model().eval()
    x = rabbet.randn(3, 4)
    pair = (rabbet.ones(2), rabbet.zeros(1))
    program = export(model, (x,), {"twice": True, "pair": pair})
    assert isinstance(program, ExportedProgram)
    found, wanted = program.module()(x, twice=True, pair=pair), model(x, twice=True, pair=pair)
    assert (
        rabbet.equal(found["y"], wanted["y"]) and found["rows"] == 3 and found["pair"][1] is pair[1]
    )
    with pytest.raises(InputError, match="plain arguments are part of the graph"):
        program.module()(x, twice=False, pair=pair)
    with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
        program(x)


def test_exporting_changes_nothing():
    model, x = Model(), rabbet.randn(3, 4)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    rabbet.manual_seed(3)
    program = export(model, (x,), dynamic_shapes={"x": {0: Dim("n", min=2)}})
    drawn = rabbet.rand(2)
    rabbet.manual_seed(3)
    assert rabbet.equal(drawn, rabbet.rand(2))
    assert all(rabbet.equal(v, before[k]) for k, v in model.state_dict().items())
    program.module()(x)
    assert not rabbet.equal(model.norm.running_mean, before["norm.running_mean"])


def test_the_signature_names_state_and_arguments():
    program = export(Model(), (rabbet.randn(3, 4),))
    signature = program.graph_signature
    assert signature.parameters == ("first.weight", "first.bias", "norm.weight", "norm.bias")
    assert signature.buffers[:1] == ("scale",) and signature.non_persistent_buffers == ("scale",)
    assert signature.user_inputs == ("0",) and len(signature.user_outputs) == 3
    assert signature.user_outputs[1:] == (None, 3)
    assert set(signature.buffers_to_mutate.values()) == {
        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"
    }  # fmt: skip
    assert len(signature.lifted_tensor_constants) == 1 and len(program.constants) == 2
    kinds = [spec.kind for spec in signature.input_specs]
    assert kinds[0] is InputKind.PARAMETER and kinds[-1] is InputKind.USER_INPUT
    assert list(program.state_dict) == list(Model().state_dict())
    assert [name for name, _ in program.named_parameters()] == list(signature.parameters)
    assert "first.weight" in str(program)


def test_dynamic_shapes():
    batch, width = dims("batch", "width", max=64)

    class Sum(nn.Module):
        def forward(self, x, y):
            return x @ y

    x, y = rabbet.randn(3, 4), rabbet.randn(4, 5)
    program = export(Sum(), (x, y), dynamic_shapes=({0: batch, 1: width}, {0: width}))
    assert program.range_constraints == {"batch": (1, 64), "width": (1, 64)}
    a, b = rabbet.randn(7, 2), rabbet.randn(2, 5)
    assert rabbet.equal(program.module()(a, b), a @ b)
    for shapes in (
        {"x": {0: Dim.AUTO}, "y": None},
        {"x": [Dim.DYNAMIC, None], "y": (Dim.STATIC, Dim.STATIC)},
        ({0: Dim.AUTO, 1: Dim.STATIC}, None),
    ):
        program = export(Sum(), (x, y), dynamic_shapes=shapes)
        a = rabbet.randn(9, 4)
        assert rabbet.equal(program.module()(a, y), a @ y)
    static = export(
        Sum(), (x, y), dynamic_shapes={"x": {1: Dim.AUTO}, "y": None}
    )  # cannot be dynamic alone
    assert not static.range_constraints
    with pytest.raises(CaptureError, match="does not accept other sizes"):
        export(Sum(), (x, y), dynamic_shapes={"x": {1: Dim.DYNAMIC}, "y": None})
    with pytest.raises(NotImplementedError, match="sizes computed from 'batch'"):
        2 * batch


@pytest.mark.parametrize("dynamic", [False, True])
def test_files_hold_the_whole_program(dynamic, tmp_path):
    model, x = Model().eval(), rabbet.randn(3, 4)
    program = export(
        model,
        (x,),
        {"pair": [x, x]},
        dynamic_shapes={"x": {0: Dim("n")}, "pair": [{0: Dim("n")}] * 2} if dynamic else None,
    )
    path = tmp_path / "program.pt2"
    save(program, path, extra_files={"note": "text"})
    extra = {"note": ""}
    again = load(path, extra_files=extra)
    assert extra == {"note": "text"} and str(again) == str(program)
    found, wanted = again.module()(x, pair=[x, x]), model(x, pair=[x, x])
    assert rabbet.equal(found["y"], wanted["y"]) and type(found["pair"]) is list
    assert [p.requires_grad for p in again.parameters()] == [True] * 4
    again.module()(x, pair=[x, x])["y"].sum().backward()
    assert all(p.grad is not None for p in again.parameters()) and model.first.weight.grad is None


def test_files_that_are_none_are_refused(tmp_path):
    rabbet.save({"a": 1}, tmp_path / "other.pt")
    with pytest.raises(RuntimeError, match="holds no exported program"):
        load(tmp_path / "other.pt")
    stream = io.BytesIO()
    save(export(Model(), (rabbet.randn(3, 4),)), stream)
    stream.seek(0)
    content = rabbet.load(stream)
    newer, wrong = io.BytesIO(), io.BytesIO()
    rabbet.save(content | {"version": 9}, newer)
    rabbet.save(
        content | {"graph": content["graph"].replace("linear(", "linear_of_tomorrow(")}, wrong
    )
    for bad, message in (
        (newer, "version 9, which is newer"),
        (wrong, "(?s)cannot run the program: .*linear_of_tomorrow"),
    ):
        bad.seek(0)
        with pytest.raises(RuntimeError, match=message):
            load(bad)


def test_what_is_missing_is_refused():
    x = rabbet.randn(3, 4)
    program = export(Model(), (x,))
    for call, error, message in (
        (lambda: export(lambda x: x, (x,)), TypeError, "expected a Module, got function"),
        (
            lambda: export(Model(), x),
            TypeError,
            "expected a tuple of example arguments, got Tensor",
        ),
        (
            lambda: export(Model(), (x,), preserve_module_call_signature=("first",)),
            NotImplementedError,
            "preserve_module",
        ),
        (lambda: rabbet.export.draft_export(Model(), (x,)), NotImplementedError, "use export"),
        (lambda: rabbet.export.unflatten(program), NotImplementedError, "unflatten"),
        (lambda: rabbet.export.ShapesCollection(), NotImplementedError, "ShapesCollection"),
        (lambda: program.run_decompositions(), NotImplementedError, "run_decompositions"),
        (lambda: program.module().eval(), NotImplementedError, "eval"),
        (lambda: save(3, "x"), TypeError, "expected an ExportedProgram, got int"),
        (lambda: save(program, "x", version=3), TypeError, "unexpected keyword argument 'version'"),
    ):
        with pytest.raises(error, match=message):
            call()

    class Reads(nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    with pytest.raises(CaptureError, match=r"item\(\) at .*test_export.py"):
        export(Reads(), (x,))
