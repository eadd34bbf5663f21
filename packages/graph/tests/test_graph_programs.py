"""Random programs: a graph computes the bits of the eager program, however it was edited."""

import os

import pytest
import rabbet
from graph_programs import Program
from rabbet.graph import CaptureError, InputError, capture, parse
from rabbet.utils._pytree import tree_leaves

COUNT = int(os.environ.get("RABBET_GRAPH_PROGRAMS", "60"))


def bits(value):
    """What two tensors with equal bits have in common."""
    if not isinstance(value, rabbet.Tensor):
        return value
    dense = value.detach().contiguous()
    raw = (
        dense.view(rabbet.uint8)
        if dense.ndim and dense.numel()
        else dense.reshape(-1).view(rabbet.uint8)
    )
    return (value.dtype, tuple(value.shape), value.stride(), raw.flatten().tolist())


def outcome(run, inputs):
    """Results of a run and its inputs afterwards, with the random numbers of seed 1 and the next one drawn."""
    rabbet.manual_seed(1)
    results = run(*inputs)
    return [bits(v) for v in [*tree_leaves(results), *inputs, rabbet.rand(2)]]


@pytest.mark.parametrize("seed", range(COUNT))
def test_graphs_compute_what_programs_compute(seed):
    program = Program(seed)
    wanted = outcome(program, program.inputs(7))
    first = program.inputs(5)
    rabbet.manual_seed(1)
    graph = capture(program, *first)
    assert (
        outcome(lambda *inputs: None, first)[1:-1]
        == outcome(program, program.inputs(5))[-1 - len(first) : -1]
    )
    graph.check()
    assert outcome(graph.run, program.inputs(7)) == wanted

    text = str(graph)
    again = parse(text, graph.bound, graph.objects)
    assert str(again) == text
    again.check()
    assert outcome(again.run, program.inputs(7)) == wanted

    edited = graph.copy()
    before = len(edited.nodes)
    edited.eliminate_dead()
    edited.merge_common()
    edited.sort()
    assert len(edited.nodes) <= before
    edited.check()
    assert outcome(edited.run, program.inputs(7)) == wanted


def test_the_generator_of_programs_draws_all_kinds_of_steps():
    names = {step.__qualname__ for seed in range(COUNT) for step in Program(seed).steps}
    assert len(names) >= 16


def with_shape(program, shape, seed):
    """Inputs of another shape."""
    before, program.shape = program.shape, shape
    made = program.inputs(seed)
    program.shape = before
    return made


def test_graphs_with_dynamic_sizes_compute_what_programs_compute():
    captured = 0
    for seed in range(COUNT):
        program = Program(seed, length=10)
        rows, columns = program.shape
        try:
            graph = capture(
                program, *program.inputs(5), dynamic=[{0: "rows", 1: "columns"}] * program.ninputs
            )
        except (
            CaptureError
        ):  # shapes that agreed by chance, or numbers that are part of the program
            continue
        captured += 1
        graph.check()
        assert str(parse(str(graph))) == str(graph)
        for shape in ((rows + 2, columns + 3), (rows + 5, columns), (rows, columns)):
            try:
                wanted = outcome(program, with_shape(program, shape, 3))
            except (RuntimeError, IndexError):
                continue
            try:
                found = outcome(graph.run, with_shape(program, shape, 3))
            except InputError:
                continue
            assert found == wanted, (seed, shape)
    assert captured > COUNT / 4
