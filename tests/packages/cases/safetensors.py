import os
import tempfile

import torch
from models import array, case, filled, integers
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model


def in_folder(function):
    def run(*inputs):
        with tempfile.TemporaryDirectory() as folder:
            return function(os.path.join(folder, "x.safetensors"), *inputs)

    return run


@case("safetensors")
def a_file_gives_back_every_dtype():
    dtypes = (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool, torch.float8_e4m3fn,
    )  # fmt: skip

    @in_folder
    def run(path, x):
        tensors = {str(d): (x * 10).detach().to(d) for d in dtypes}
        save_file(tensors, path, metadata={"format": "pt"})
        back = load_file(path)
        assert sorted(back) == sorted(tensors)
        assert all(
            back[k].dtype == v.dtype and back[k].shape == v.shape for k, v in tensors.items()
        )
        return [back[str(d)].to(torch.float64) for d in dtypes]

    return run, array(3, 5)


@case("safetensors")
def bytes_of_a_file():
    def run(x):
        data = save({"x": x.detach(), "empty": torch.zeros(0, 3)})
        back = load(data)
        assert back["empty"].shape == (0, 3)
        return back["x"], torch.tensor(list(data[8:200]))

    return run, array(4, 4)


@case("safetensors")
def slices_are_read_alone():
    @in_folder
    def run(path, x):
        save_file({"x": x.detach()}, path, metadata={"a": "b"})
        with safe_open(path, framework="pt", device="cpu") as file:
            assert file.metadata() == {"a": "b"} and list(file.keys()) == ["x"]
            part = file.get_slice("x")
            assert part.get_shape() == [6, 8]
            return part[2:4], part[:, ::1][:, 3], file.get_tensor("x")

    return run, array(6, 8)


@case("safetensors")
def a_model_with_shared_weights():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Embedding(9, 4)
            self.outer = torch.nn.Linear(4, 9, bias=False)
            self.outer.weight = self.inner.weight

        def forward(self, tokens):
            return self.outer(self.inner(tokens))

    model, other = filled(Tied()), Tied()
    in_folder(lambda path: (save_model(model, path), load_model(other, path)))()
    assert other.inner.weight is other.outer.weight
    return other, integers(9, 5)


@case("safetensors")
def shared_memory_is_refused():
    @in_folder
    def run(path, x):
        try:
            save_file({"x": x.detach(), "y": x.detach()[:2]}, path)
        except RuntimeError as error:
            assert "share memory" in str(error), error
            return torch.ones(1)
        raise AssertionError("shared memory was saved")

    return run, array(4)


@case("safetensors")
def what_is_no_tensor_is_refused():
    @in_folder
    def run(path, x):
        for bad, kind in (
            ({"x": 3}, ValueError),
            ({"x": x.detach().t()[::2]}, ValueError),
            ([x], ValueError),
        ):
            try:
                save_file(bad, path)
            except kind:
                continue
            raise AssertionError(bad)
        return torch.ones(1)

    return run, array(4, 4)
