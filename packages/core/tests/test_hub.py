"""rabbet.hub: models of local folders, and weights by their URL."""

import hashlib
import http.server
import os
import stat
import sys
import threading
import urllib.error
import zipfile

import pytest
import rabbet
from rabbet import hub
from rabbet.utils import model_zoo

CONF = '''
dependencies = ["math", "rabbet"]
import rabbet
from hub_parts_of_a_test import scale as _scale

def doubled(x, *, offset=0):
    """Twice a number, and an offset."""
    return _scale(x, 2) + offset

class Adder:
    def __init__(self, n):
        self.n = n

def _hidden():
    pass

number = 3
'''


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "hubconf.py").write_text(CONF)
    (folder / "hub_parts_of_a_test.py").write_text("def scale(x, n):\n    return x * n\n")
    yield folder
    sys.modules.pop("hub_parts_of_a_test", None)


@pytest.fixture(autouse=True)
def folder_of_models(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_hub_dir", None)
    monkeypatch.delenv("TORCH_HUB", raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "hub"


# ---- repositories


def test_entry_points_of_a_folder(repository):
    paths = list(sys.path)
    assert hub.list(repository, source="local") == ["Adder", "doubled"]
    assert hub.help(str(repository), "doubled", source="local") == "Twice a number, and an offset."
    assert hub.load(str(repository), "doubled", 4, source="local", offset=1) == 9
    assert hub.load(repository, "Adder", n=5, source="local").n == 5
    assert sys.path == paths and "hubconf" not in sys.modules


@pytest.mark.parametrize(
    "name, repo", [("me_models_main", "me/models"), ("me_models_master", "me/models"),
                   ("me_models_v1_x", "me/models:v1/x")],
)  # fmt: skip
def test_repositories_that_pytorch_downloaded_are_found(repository, folder_of_models, name, repo):
    folder_of_models.mkdir(parents=True)
    repository.rename(folder_of_models / name)
    assert hub.list(repo) == ["Adder", "doubled"]
    assert hub.load(repo, "doubled", 1, trust_repo=True) == 2
    with pytest.raises(RuntimeError, match=r"hub.load: rabbet downloads no repositories; clone"):
        hub.load(repo, "doubled", 1, force_reload=True)


def test_repositories_that_are_not_there_are_not_downloaded(folder_of_models):
    there = os.path.join(str(folder_of_models), "pytorch_vision_main")
    with pytest.raises(RuntimeError, match=r"downloads no repositories") as caught:
        hub.load("pytorch/vision", "resnet18")
    assert there in str(caught.value) and "source='local'" in str(caught.value)
    with pytest.raises(RuntimeError, match=r"hub.list: rabbet downloads no repositories"):
        hub.list("pytorch/vision:v0.10.0")
    with pytest.raises(RuntimeError, match=r"hub.help: rabbet downloads no repositories"):
        hub.help("pytorch/vision", "resnet18")


def test_wrong_names_are_refused(repository, tmp_path):
    with pytest.raises(ValueError, match=r'Unknown source: "gitlab". Allowed values: "github"'):
        hub.load(repository, "doubled", source="gitlab")
    with pytest.raises(ValueError, match=r"expected repo_owner/repo_name.*needs source='local'"):
        hub.list("models")
    with pytest.raises(FileNotFoundError, match=r"has no hubconf.py"):
        hub.list(tmp_path, source="local")
    with pytest.raises(TypeError, match=r"hub.list: expected the name of a folder, got int"):
        hub.list(3, source="local")
    with pytest.raises(
        RuntimeError, match=r"Cannot find callable number in hubconf; .*: Adder, doubled"
    ):
        hub.load(repository, "number", source="local")
    with pytest.raises(RuntimeError, match=r"Cannot find callable missing"):
        hub.help(repository, "missing", source="local")
    with pytest.raises(ValueError, match=r"model should be a string of function name"):
        hub.load(repository, 3, source="local")


def test_missing_dependencies_are_named(tmp_path):
    (tmp_path / "hubconf.py").write_text("dependencies = ['math', 'no_such_a', 'no_such_b.c']")
    with pytest.raises(RuntimeError, match=r"^Missing dependencies: no_such_a, no_such_b.c$"):
        hub.list(tmp_path, source="local")


def test_errors_of_a_folder_leave_the_path_as_it_was(tmp_path):
    (tmp_path / "hubconf.py").write_text("raise ValueError('broken')")
    paths = list(sys.path)
    with pytest.raises(ValueError, match=r"broken"):
        hub.list(tmp_path, source="local")
    assert sys.path == paths


# ---- files


@pytest.fixture
def weights(tmp_path):
    """A file whose name has its hash."""
    state = {"w": rabbet.arange(6.0), "n": rabbet.tensor(3)}
    plain = tmp_path / "plain.pt"
    rabbet.save(state, plain)
    digest = hashlib.sha256(plain.read_bytes()).hexdigest()
    path = tmp_path / f"net-{digest[:8]}.pt"
    plain.rename(path)
    return path


def test_a_file_is_copied_whole_or_not_at_all(weights, tmp_path):
    target = tmp_path / "copy.pt"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    hub.download_url_to_file(weights.as_uri(), target, digest[:10], progress=False)
    assert target.read_bytes() == weights.read_bytes()
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask
    target.write_text("old")
    with pytest.raises(
        RuntimeError, match=rf'invalid hash value \(expected "0000", got "{digest}"\)'
    ):
        hub.download_url_to_file(weights.as_uri(), str(target), "0000", progress=False)
    with pytest.raises(urllib.error.URLError):
        hub.download_url_to_file((tmp_path / "none").as_uri(), target)
    assert target.read_text() == "old" and not list(tmp_path.glob("*.partial"))


def test_progress_is_shown_by_tqdm(weights, tmp_path, monkeypatch):
    shown = []

    class Bar:
        def __init__(self, total, **options):
            shown.append(total)

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            pass

        def update(self, count):
            shown.append(count)

    monkeypatch.setattr(hub, "tqdm", Bar)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "tqdm")
    monkeypatch.setattr(hub, "READ_DATA_CHUNK", 100)
    hub.download_url_to_file(weights.as_uri(), tmp_path / "copy")
    size = weights.stat().st_size
    assert shown[0] == size and sum(shown[1:]) == size and shown[1] == 100


class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * (1000 if self.path == "/whole" else 10))

    def log_message(self, *args):
        pass


def test_files_of_a_server_are_complete(tmp_path):
    with http.server.HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        hub.download_url_to_file(f"{address}/whole", tmp_path / "file", progress=False)
        assert (tmp_path / "file").read_bytes() == b"x" * 1000
        with pytest.raises(Exception, match=r"got 10 of 1000 bytes|IncompleteRead"):
            hub.download_url_to_file(f"{address}/part", tmp_path / "other", progress=False)
        server.shutdown()
    assert [p.name for p in tmp_path.iterdir() if "other" in p.name] == []


def test_weights_are_downloaded_once(weights, folder_of_models, capsys):
    loaded = hub.load_state_dict_from_url(weights.as_uri(), progress=False, check_hash=True)
    assert loaded["w"].tolist() == list(range(6)) and loaded["n"] == 3
    kept = folder_of_models / "checkpoints" / weights.name
    assert f'Downloading: "{weights.as_uri()}" to {kept}' in capsys.readouterr().err
    weights.unlink()
    again = model_zoo.load_url(weights.as_uri(), map_location="cpu", weights_only=True)
    assert again["w"].tolist() == list(range(6)) and capsys.readouterr().err == ""


def test_names_and_folders_of_weights(weights, tmp_path):
    folder = tmp_path / "a" / "b"
    hub.load_state_dict_from_url(weights.as_uri(), folder, progress=False, file_name="mine.pt")
    assert [p.name for p in folder.iterdir()] == ["mine.pt"]
    with pytest.warns(UserWarning, match=r"the name 'my.pt' has no hash to check"):
        hub.load_state_dict_from_url(
            weights.as_uri(), folder, progress=False, check_hash=True, file_name="my.pt"
        )
    with pytest.raises(ValueError, match=r"does not end with the name of a file"):
        hub.load_state_dict_from_url("https://example.org/", folder)
    wrong = weights.rename(weights.with_name("net-00000000.pt"))
    with pytest.raises(RuntimeError, match=r'invalid hash value .expected "00000000"'):
        hub.load_state_dict_from_url(wrong.as_uri(), folder, progress=False, check_hash=True)
    assert sorted(p.name for p in folder.iterdir()) == ["mine.pt", "my.pt"]


def test_weights_in_an_archive_of_one_file(weights, tmp_path):
    archive = tmp_path / "net.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(weights, "net.pt")
    loaded = hub.load_state_dict_from_url(archive.as_uri(), tmp_path / "kept", progress=False)
    assert loaded["w"].tolist() == list(range(6))
    assert [p.name for p in (tmp_path / "kept").iterdir()] == ["net.zip"]


def test_the_former_variable_warns(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HUB", "x")
    with pytest.warns(UserWarning, match=r"TORCH_HUB is deprecated, please use env TORCH_HOME"):
        assert hub.get_dir() == str(tmp_path / "home" / "hub")
