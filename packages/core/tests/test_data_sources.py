"""Datasets of files: what they give against the libraries that wrote the files, in the loop and in workers."""

import io
import json
import pickle
import tarfile

import numpy as np
import pytest
import rabbet
from rabbet.utils import data
from rabbet.utils.data import sources

METHODS = [None, "fork", "spawn"]


def batches(dataset, size, method, **options):
    if method is not None:
        options |= {"num_workers": 2, "multiprocessing_context": method}
    return list(data.DataLoader(dataset, size, **options))


# ---- tables


@pytest.fixture
def table():
    arrow = pytest.importorskip("pyarrow")
    lists = arrow.FixedSizeListArray.from_arrays(arrow.array(range(20), arrow.int32()), 2)
    columns = {
        "x": arrow.array(np.linspace(0, 1, 10)), "n": arrow.array(range(10), arrow.int16()), "pair": lists,
        "text": [f"row {i}" for i in range(10)], "some": [i if i % 2 else None for i in range(10)],
        "flag": [i > 4 for i in range(10)],
    }  # fmt: skip
    return arrow.table(columns)


def write_table(table, path):
    import pyarrow
    from pyarrow import feather, parquet

    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    elif path.suffix == ".feather":
        feather.write_feather(table, str(path), compression="uncompressed")
    else:
        with pyarrow.ipc.new_stream(str(path), table.schema) as file:
            file.write_table(table, max_chunksize=3)


def check_rows(dataset, table):
    assert len(dataset) == table.num_rows
    for i, row in enumerate(table.to_pylist()):
        for name, value in row.items():
            got = dataset[i][name]
            if name in ("x", "n", "pair", "flag"):
                assert isinstance(got, rabbet.Tensor) and got.tolist() == value, (name, got)
            else:
                assert got == value and type(got) is type(value), (name, got)
    kinds = {name: dataset[0][name].dtype for name in ("x", "n", "pair", "flag")}
    assert kinds == {
        "x": rabbet.float64,
        "n": rabbet.int16,
        "pair": rabbet.int32,
        "flag": rabbet.bool,
    }
    assert dataset[-1]["n"] == dataset[len(dataset) - 1]["n"]


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow", None])
def test_rows_of_tables_are_those_that_were_written(table, tmp_path, suffix):
    import pyarrow

    if suffix is None:
        return check_rows(sources.TableDataset(table), table)
    paths = [tmp_path / f"{i}{suffix}" for i in range(2)]
    for path in paths:
        write_table(table, path)
    check_rows(sources.TableDataset(paths), pyarrow.concat_tables([table, table]))
    check_rows(
        sources.TableDataset(str(tmp_path / f"*{suffix}")), pyarrow.concat_tables([table, table])
    )
    check_rows(pickle.loads(pickle.dumps(sources.TableDataset(paths[0]))), table)


def test_numbers_of_a_table_are_read_where_they_are(table):
    columns = sources.TableDataset(table)._content[1]
    for name in ("x", "n"):
        assert columns[name].data_ptr() == table.column(name).chunk(0).buffers()[1].address


@pytest.mark.parametrize("method", METHODS)
def test_tables_are_loaded_by_workers(table, tmp_path, method):
    write_table(table, tmp_path / "t.parquet")
    found = batches(sources.TableDataset(tmp_path / "t.parquet", ["n", "text", "pair"]), 4, method)
    assert [b["n"].tolist() for b in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert found[0]["text"] == [f"row {i}" for i in range(4)] and found[0]["pair"].shape == (4, 2)


def test_wrong_tables_are_refused(table, tmp_path):
    (tmp_path / "t.csv").write_text("a,b")
    with pytest.raises(
        ValueError, match=r"expected paths that end in .parquet, .arrow or .feather, got '.*t\.csv'"
    ):
        sources.TableDataset(tmp_path / "t.csv")
    with pytest.raises(FileNotFoundError, match=r"TableDataset: there is no file '.*x\.parquet'"):
        sources.TableDataset(tmp_path / "x.parquet")
    with pytest.raises(KeyError, match="there is no column 'y', but"):
        sources.TableDataset(table, ["x", "y"])
    with pytest.raises(IndexError, match="index 10 of 10 rows"):
        sources.TableDataset(table)[10]


def test_tables_without_pyarrow_say_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pyarrow"):
        sources.TableDataset("x.parquet")


# ---- tar shards


def write_shard(path, names, mode="w"):
    with tarfile.open(path, mode) as file:
        for name in names:
            stem = name.rsplit("/", 1)[-1]
            for suffix, content in (("cls", str(len(stem))), ("seg.json", json.dumps([name]))):
                content = content.encode()
                member = tarfile.TarInfo(f"{name}.{suffix}")
                member.size = len(content)
                file.addfile(member, io.BytesIO(content))


@pytest.fixture
def shards(tmp_path):
    for i in range(5):
        names = [f"part{i}/s{'x' * j}" for j in range(4)]
        write_shard(
            tmp_path / f"{i}.tar{'.gz' if i == 4 else ''}", names, "w:gz" if i == 4 else "w"
        )
    return str(tmp_path / "*.tar*")


EVERY = {f"part{i}/s{'x' * j}" for i in range(5) for j in range(4)}


def test_samples_of_shards_have_their_files_by_suffix(shards):
    found = list(sources.TarShards(shards, {"cls": int}))
    assert [s["__key__"] for s in found[:3]] == ["part0/s", "part0/sx", "part0/sxx"]
    assert found[2] == {
        "__key__": "part0/sxx",
        "__shard__": shards.replace("*.tar*", "0.tar"),
        "cls": 3,
        "seg.json": b'["part0/sxx"]',
    }
    assert [s["__key__"] for s in found] == sorted(EVERY)


@pytest.mark.parametrize("method", ["fork", "spawn", "threads"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_workers_share_the_shards(shards, method, shuffle):
    options = {"kind": "threads"} if method == "threads" else {"multiprocessing_context": method}
    dataset = sources.TarShards(shards, {"seg.json": json.loads}, shuffle=shuffle)
    loader = data.DataLoader(dataset, None, num_workers=2, **options)
    rabbet.manual_seed(3)
    passes = [[s["seg.json"][0] for s in loader] for _ in range(2)]
    assert all(sorted(p) == sorted(EVERY) for p in passes)
    assert (passes[0] != passes[1]) == shuffle


def test_programs_share_the_shards_and_orders_follow_the_generator(shards):
    parts = [
        [s["__key__"] for s in sources.TarShards(shards, rank=r, world_size=2)] for r in range(2)
    ]
    assert sorted(parts[0] + parts[1]) == sorted(EVERY) and len(parts[0]) == 12
    orders = [
        [s["__key__"] for s in sources.TarShards(shards, shuffle=True, generator=rabbet.Generator().manual_seed(seed))]
        for seed in (1, 1, 2)
    ]  # fmt: skip
    assert orders[0] == orders[1] != orders[2]


def test_wrong_shards_are_refused(shards, tmp_path):
    with pytest.raises(FileNotFoundError, match="TarShards: there is no file 'none"):
        sources.TarShards("none*.tar")
    with pytest.raises(ValueError, match="expected a rank from 0 to 1, got 2 of 2"):
        sources.TarShards(shards, rank=2, world_size=2)
    (tmp_path / "bad.tar").write_bytes(b"no tar file" * 100)
    with pytest.raises(ValueError, match=r"bad\.tar is damaged, or no tar file"):
        list(sources.TarShards(tmp_path / "bad.tar"))
    write_shard(tmp_path / "twice.tar", ["a", "a"])
    with pytest.raises(ValueError, match="the sample 'a' has 'cls' twice"):
        list(sources.TarShards(tmp_path / "twice.tar"))
    with pytest.raises(ValueError, match="invalid literal") as caught:
        list(sources.TarShards(shards, {"seg.json": int}))
    assert any("It is the file 'part0/s.seg.json' of" in note for note in caught.value.__notes__)


# ---- mapped arrays and safetensors


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_a_raw_file(tmp_path, method):
    rows = np.arange(60, dtype=np.int16).reshape(10, 3, 2)
    rows.tofile(tmp_path / "rows")
    dataset = sources.MappedDataset(tmp_path / "rows", rabbet.int16, (3, 2))
    assert len(dataset) == 10 and dataset[-1].tolist() == rows[-1].tolist()
    found = batches(dataset, 4, method)
    assert [len(b) for b in found] == [4, 4, 2]
    assert (np.concatenate([b.numpy() for b in found]) == rows).all()


def test_wrong_raw_files_are_refused(tmp_path):
    (tmp_path / "x").write_bytes(bytes(10))
    with pytest.raises(
        ValueError,
        match=r"expected whole rows of 12 bytes \(rabbet.float32, shape \(3,\)\), got 10 in",
    ):
        sources.MappedDataset(tmp_path / "x", rabbet.float32, (3,))
    with pytest.raises(FileNotFoundError):
        sources.MappedDataset(tmp_path / "y", rabbet.float32)
    with pytest.raises(IndexError, match="index 5 of 5 rows"):
        sources.MappedDataset(tmp_path / "x", rabbet.int16)[5]
    (tmp_path / "empty").write_bytes(b"")
    assert len(sources.MappedDataset(tmp_path / "empty", rabbet.int8, (2,))) == 0


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_safetensors_files_follow_each_other(tmp_path, method):
    for i in range(2):
        state = {"x": rabbet.arange(12.0).reshape(6, 2) + 100 * i, "y": rabbet.arange(6) + 10 * i}
        rabbet.save(state, tmp_path / f"{i}.safetensors")
    dataset = sources.SafetensorsDataset(str(tmp_path / "*.safetensors"))
    assert len(dataset) == 12 and dataset[7]["x"].tolist() == [102, 103] and dataset[-1]["y"] == 15
    found = batches(dataset, 5, method)
    assert [y for b in found for y in b["y"].tolist()] == [*range(6), *range(10, 16)]
    assert list(sources.SafetensorsDataset(tmp_path / "0.safetensors", ["y"])[3]) == ["y"]


def test_wrong_safetensors_are_refused(tmp_path):
    rabbet.save({"x": rabbet.ones(3), "y": rabbet.ones(2)}, tmp_path / "a.safetensors")
    with pytest.raises(
        ValueError, match=r"expected tensors with one number of rows, got \{'x': 3, 'y': 2\}"
    ):
        sources.SafetensorsDataset(tmp_path / "a.safetensors")
    with pytest.raises(KeyError, match="has no tensor 'z', but"):
        sources.SafetensorsDataset(tmp_path / "a.safetensors", ["z"])
    assert len(sources.SafetensorsDataset(tmp_path / "a.safetensors", ["x"])) == 3
