"""Programs whose state changes between calls: replayed calls do what eager calls do."""

import contextlib
import random

import mutable_programs
import pytest
import rabbet
import rabbet_compile
from rabbet_compile._replaying import state_of

CALLS = 12


def modes(rng):
    """How a call is made."""
    chosen = rng.random()
    if chosen < 0.06:
        return rabbet.no_grad
    if chosen < 0.1:
        return lambda: rabbet.autocast("cpu", dtype=rabbet.bfloat16)
    return contextlib.nullcontext


def compare(seed):
    """Run a program in two worlds; returns how often it was replayed."""
    rng = random.Random(seed)
    source, optimizer = mutable_programs.program(rng), rng.choice(["SGD", "Adam"])
    mutable_programs.World.limit = 7
    worlds = [mutable_programs.World(source, seed, optimizer) for _ in range(2)]
    compiled = rabbet_compile.compile(worlds[1].step)
    steps = [worlds[0].step, compiled]
    make = mutable_programs.arguments(rng)
    log = []
    for call in range(CALLS):
        if rng.random() < 0.35:
            change, kept = rng.choice(mutable_programs.CHANGES), rng.getstate()
            log.append(f"{call}: change {mutable_programs.CHANGES.index(change)}")
            for world in worlds:
                rng.setstate(kept)
                change(world, rng)
        if rng.random() < 0.2:
            make = mutable_programs.arguments(rng)
        mode = modes(rng)
        found = []
        for world, step in zip(worlds, steps, strict=True):
            with mode():
                found.append([*mutable_programs.outcome(step, make, call), world.state()])
        differences = mutable_programs.differences("", *found)
        assert not differences, f"program {seed}, call {call}: {differences}\n{log}\n{source}"
    return state_of(compiled).variants.runs


@pytest.mark.filterwarnings("ignore")
def test_programs_whose_state_changes_do_not_differ_from_eager():
    replays = sum(compare(seed) for seed in range(25))
    assert replays > 40, replays


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", [10**6, 2 * 10**6])
def test_many_programs_whose_state_changes_do_not_differ_from_eager(first):
    replays = sum(compare(seed) for seed in range(first, first + 2000))
    assert replays > 4000, replays
