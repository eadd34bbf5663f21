"""Compiled kernels: from memory, the seed pack, the disk, the compiler, in this order."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from make_seed_pack import write_pack

SUM = "print((rabbet.ones(3, device='cuda') + 1).tolist())"
CODE = f"import rabbet\n{SUM}"
THREE = "[2.0, 2.0, 2.0]\n"


@pytest.fixture
def cached(simulator, tmp_path):
    """The simulator with caches of its own, and without those of the compiler's stand-in."""
    kernels = tmp_path / "cusim"
    kernels.mkdir()
    for path in Path(simulator["CUSIM_FOLDER"]).iterdir():
        if path.is_file():
            (kernels / path.name).symlink_to(path)
    cache = tmp_path / "cache"
    return {**simulator, "CUSIM_FOLDER": str(kernels), "RABBET_CUDA_CACHE": str(cache)}


def compiled(environment):
    """How often the compiler ran: it keeps what it made."""
    return len(list((Path(environment["CUSIM_FOLDER"]) / "kernels").glob("*.so")))


def files(environment):
    return sorted(Path(environment["RABBET_CUDA_CACHE"]).glob("*.cubin"))


def forget(environment):
    for path in (Path(environment["CUSIM_FOLDER"]) / "kernels").iterdir():
        path.unlink()


def test_a_later_process_compiles_nothing(cached, run):
    assert run(CODE, **cached) == THREE
    first = compiled(cached)
    assert first > 0 and len(files(cached)) == first
    forget(cached)
    assert run(CODE, **cached) == THREE
    assert compiled(cached) == 0


@pytest.mark.parametrize("damage", [b"", b"no kernel", None], ids=["empty", "other", "cut"])
def test_a_damaged_file_is_written_anew(cached, run, damage):
    run(CODE, **cached)
    whole = {path: path.read_bytes() for path in files(cached)}
    for path, content in whole.items():
        path.write_bytes(content[: len(content) // 2] if damage is None else damage)
    assert run(CODE, **cached) == THREE
    assert all(path.read_bytes() == content for path, content in whole.items())


def test_a_whole_file_that_does_not_load_is_written_anew(cached, run):
    run(CODE, **cached)
    for path in files(cached):
        path.write_bytes(hashlib.sha256(b"junk").hexdigest().encode() + b"\njunk")
    assert run(CODE, **cached) == THREE
    assert all(len(path.read_bytes()) > 1000 for path in files(cached))


def test_several_processes_fill_one_folder(cached):
    import os

    command = [sys.executable, "-c", CODE]
    jobs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **cached})
        for _ in range(3)
    ]
    assert [job.communicate()[0] for job in jobs] == [THREE] * 3
    assert files(cached)
    assert not list(Path(cached["RABBET_CUDA_CACHE"]).glob("*.tmp"))


def test_zero_turns_the_cache_off_and_a_folder_that_cannot_be_made_is_none(cached, run):
    assert run(CODE, **{**cached, "RABBET_CUDA_CACHE": "0"}) == THREE
    assert run(CODE, **{**cached, "RABBET_CUDA_CACHE": "/proc/none"}) == THREE


def test_the_cache_is_in_the_home_of_caches(cached, run, tmp_path):
    environment = {**cached, "RABBET_CUDA_CACHE": "", "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    run(CODE, **environment)
    assert list((tmp_path / "xdg/rabbet/cuda").glob("*.cubin"))


def test_the_oldest_files_go_when_there_are_too_many(cached, run):
    folder = Path(cached["RABBET_CUDA_CACHE"])
    folder.mkdir()
    old = folder / ("0" * 64 + ".cubin")
    old.write_bytes(bytes(3 << 20))
    import os

    os.utime(old, (1, 1))
    run(CODE, **cached, RABBET_CUDA_CACHE_MB="2")
    assert not old.exists() and files(cached)


def test_a_text_that_does_not_compile_is_kept_with_the_log(cached, run, tmp_path):
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\necho 'there is no compiler today' >&2\nexit 1\n")
    broken.chmod(0o755)
    import os

    path = f"{tmp_path}:{os.environ['PATH']}"
    code = f"import rabbet\ntry:\n {SUM}\nexcept rabbet.DeviceError as error: print(error)"
    message = run(code, **cached, PATH=path)
    kept = list((Path(cached["RABBET_CUDA_CACHE"]) / "failed").iterdir())
    assert {p.suffix for p in kept} == {".cu", ".log"}
    assert "does not compile" in message and str(kept[0].with_suffix("")) in message
    assert "rb_kernel" in next(p for p in kept if p.suffix == ".cu").read_text()
    assert "no compiler today" in next(p for p in kept if p.suffix == ".log").read_text()


def test_sources_are_kept_where_they_are_asked_for(cached, run, tmp_path):
    run(CODE, **cached, RABBET_CUDA_KEEP_SOURCES=str(tmp_path / "kept"))
    texts = {path.name.split("-")[0]: path.read_text() for path in (tmp_path / "kept").iterdir()}
    assert "rb_add" in texts["add"] and "__global__" in texts["add"]


def test_the_seed_pack_comes_before_the_compiler(cached, run, tmp_path):
    sources, seed = tmp_path / "kept", tmp_path / "kernels.seed"
    run(CODE, **cached, RABBET_CUDA_KEEP_SOURCES=str(sources))
    images = {p.read_bytes().partition(b"\n")[2] for p in files(cached)}
    assert len(images) == len(list(sources.iterdir()))
    # Each text with its image: the folder of the compiler's stand-in has both.
    pairs = {}
    for path in sources.iterdir():
        text = path.read_text()
        stem = next(
            p
            for p in (Path(cached["CUSIM_FOLDER"]) / "kernels").glob("*.cpp")
            if text in p.read_text()
        ).name.split(".")[0]
        pairs[text] = (Path(cached["CUSIM_FOLDER"]) / f"kernels/{stem}.so").read_bytes()
    write_pack(seed, {(text, "sm_90"): image for text, image in pairs.items()})
    forget(cached)
    environment = {**cached, "RABBET_CUDA_CACHE": "0"}
    assert run(CODE, **environment, RABBET_CUDA_SEED=str(seed)) == THREE
    assert compiled(cached) == 0
    # Of other texts it has nothing.
    write_pack(seed, {(text + "// other", "sm_90"): image for text, image in pairs.items()})
    assert run(CODE, **environment, RABBET_CUDA_SEED=str(seed)) == THREE
    assert compiled(cached) == len(pairs)
    forget(cached)
    # A damaged pack is none.
    seed.write_bytes(seed.read_bytes()[:60])
    assert run(CODE, **environment, RABBET_CUDA_SEED=str(seed)) == THREE
    assert compiled(cached) == len(pairs)


def test_many_threads_get_one_function(cached, run):
    code = """
    import rabbet
    from concurrent.futures import ThreadPoolExecutor
    a = rabbet.arange(8.0, device="cuda")
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: (a * a).tolist(), range(16)))
    print(all(r == [float(i * i) for i in range(8)] for r in results))
    """
    import textwrap

    assert run(textwrap.dedent(code), **cached) == "True\n"


def test_the_compiler_and_tools_hear_the_operators_name(cached, run):
    run("import rabbet\nrabbet.ones(3, device='cuda').exp().tolist()", **cached)
    sources = (Path(cached["CUSIM_FOLDER"]) / "kernels").glob("*.cpp")
    names = {path.read_text().split('#line 1 "')[1].split('"')[0] for path in sources}
    assert names == {"ones.cu", "exp.cu"}


def test_lines_for_tools_make_other_cubins(cached, run):
    run(CODE, **cached)
    plain = files(cached)
    assert run(CODE, **cached, RABBET_CUDA_LINEINFO="1") == THREE
    assert len(files(cached)) == 2 * len(plain)
