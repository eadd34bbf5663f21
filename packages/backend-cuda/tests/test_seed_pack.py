"""What the seed pack of a release holds: the kernels of common programs. How it is read is in test_kernel_cache.py."""

import pytest
from kernel_texts import PACKAGE, raw_texts
from make_seed_pack import ARCHITECTURES, main
from nvrtc import find_nvrtc

PROGRAM = """
import rabbet
from rabbet import nn, optim
from rabbet.nn import functional

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.1, batch_first=True)
        self.head = nn.Linear(32, 50)

    def forward(self, tokens):
        return self.head(self.layer(self.embedding(tokens)))

model = Model().to("cuda")
image = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(10)).to("cuda")
tokens = rabbet.randint(0, 50, (3, 20)).to("cuda")
pictures, classes = rabbet.rand(6, 1, 28, 28).to("cuda"), rabbet.randint(0, 10, (6,)).to("cuda")
image(pictures)
optimizers = optim.AdamW(model.parameters()), optim.SGD(image.parameters(), lr=0.1, momentum=0.9)
for _ in range(2):
    functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    functional.cross_entropy(image(pictures), classes).backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
accuracy = (image(pictures).argmax(1) == classes).float().mean()
"""


@pytest.fixture(scope="module")
def held():
    return set(raw_texts(PACKAGE / "tools/common_kernels.py").values())


def test_other_programs_find_nearly_all_of_their_kernels(held, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    asked = raw_texts(tmp_path / "program.py")
    lacking = [name for name, text in asked.items() if text not in held]
    assert len(asked) > 30 and len(lacking) <= 0.05 * len(asked), lacking


def test_without_a_compiler_there_is_no_pack_and_an_old_one_goes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("make_seed_pack.find_nvrtc", lambda path: None)
    pack = tmp_path / "kernels.seed"
    pack.write_bytes(b"of another version")
    assert main(["--if-there", "--output", str(pack)]) == 0
    assert "no seed pack" in capsys.readouterr().out and not pack.exists()


def test_a_pack_holds_an_image_for_every_architecture(tmp_path, capsys):
    if find_nvrtc() is None:
        pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc")
    text = 'extern "C" __global__ void rb_kernel(float* x) { x[threadIdx.x] += 1; }\n'
    (tmp_path / "one.cu").write_text(text)
    pack = tmp_path / "kernels.seed"
    assert main(["--sources", str(tmp_path), "--output", str(pack)]) == 0
    assert f"1 kernels, {len(ARCHITECTURES)} cubins" in capsys.readouterr().out
    assert pack.read_bytes().startswith(b"rabbet seed 1\n") and pack.stat().st_size < 20_000
