"""Write C++ loop bodies for the elementwise formulas of the op records: one pass instead of one per operator.

write_fused.py RECORDS OPS_H OUTPUT reads RECORDS/*.rec and the names of the scalar functions in OPS_H, and writes
OUTPUT/fused_bodies.inc (the bodies, included once per instruction-set level) and OUTPUT/fused_kernels.inc (which
kernels there are and how a call chooses a body). The evaluation follows core's formula_run.cpp value for value: the
bodies do the same operations on the same numbers in the same order, hence give the same bits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from formulas import Argument, Choice, Evaluation, Number, Scope, Tensor, Unsupported, Value
from records import Record, read_functions, read_records

MAX_INPUTS = 3  # kMaxInputs
MAX_NUMBERS = 4  # kMaxNumbers


# ---- kernels


@dataclass(frozen=True)
class Body:
    """One loop body; equal ones are written once."""

    inputs: int
    numbers: int
    statements: tuple[str, ...]
    result: str


@dataclass
class Leaf:
    """How a call reaches a body."""

    body: int
    inputs: list[tuple[int, bool]]
    numbers: list[str]


Tree = Leaf | list[tuple[str, "Tree"]]


class Kernels:
    """All kernels and their bodies."""

    def __init__(self, records: dict[str, Record], functions: dict[str, str]) -> None:
        self.records = records
        self.functions = functions
        self.bodies: dict[Body, int] = {}
        self.heavy: set[int] = set()
        self.packed: set[int] = set()
        self.kernels: list[tuple[str, str, Tree]] = []
        for record in records.values():
            if record.result != "Tensor" or record.kind == "opaque":  # shapes of other rules
                continue
            if (
                record.decomp
                and not record.decomp.startswith("function ")
                and record.name not in functions
            ):
                self.add(record, record.decomp, None)
            for argument, formula in record.vjps:
                self.add(record, formula, argument)

    def add(self, record: Record, formula: str, argument: str | None) -> None:
        tree = self.explore(record, formula, argument, {})
        if tree is None:
            return
        name = record.name if argument is None else f"{record.name}.vjp.{argument}"
        head = "decomp" if argument is None else f"vjp {argument}"
        self.kernels.append((name, record.text(f"{head} {formula}"), tree))

    def explore(
        self, record: Record, formula: str, argument: str | None, path: dict[str, object]
    ) -> Tree | None:
        evaluation = Evaluation(self.records, self.functions, path)
        try:
            return self.leaf(evaluation, evaluation.formula(formula, scope_of(record, argument)))
        except Unsupported:
            return None
        except Choice as choice:
            branches = []
            for answer, condition in choice.options:
                tree = self.explore(record, formula, argument, path | {choice.key: answer})
                if tree is not None:
                    branches.append((condition, tree))
            return branches or None

    def leaf(self, evaluation: Evaluation, result: Value) -> Leaf | None:
        if not isinstance(result, Tensor) or result.text.startswith("@"):
            return None
        if all(is_number for _, is_number in evaluation.inputs):
            return None
        if len(evaluation.inputs) > MAX_INPUTS or len(evaluation.numbers) > MAX_NUMBERS:
            return None
        body = Body(
            len(evaluation.inputs),
            len(evaluation.numbers),
            tuple(evaluation.statements),
            result.text,
        )
        index = self.bodies.setdefault(body, len(self.bodies))
        if evaluation.heavy:
            self.heavy.add(index)
        if evaluation.heavy and evaluation.packed:
            self.packed.add(index)
        return Leaf(index, evaluation.inputs, evaluation.numbers)


def scope_of(record: Record, argument: str | None) -> Scope:
    """The names of a record's formula: arguments are v[0], v[1], ...; then the result and its gradient."""
    values: dict[str, Value] = {}
    for i, p in enumerate(record.params):
        if p.type == "Tensor" and p.name == argument:
            values[p.name] = Tensor(f"@{i}")  # a number has no gradient
        elif p.type in ("Tensor", "Tensor?"):
            values[p.name] = Tensor(("??" if p.type == "Tensor?" else "?") + str(i))
        elif p.type in ("Scalar", "float", "int", "bool"):
            values[p.name] = Number(f"number(v[{i}])")
        elif p.type in ("str", "str?"):
            values[p.name] = Argument(i)
    if argument is not None:
        values["out"] = Tensor(f"@{len(record.params)}")
        values["grad"] = Tensor(f"@{len(record.params) + 1}")
    return Scope(record, values)


# ---- output

HEAD = "// Written by tools/write_fused.py from the op records. Do not edit.\n"


def write_bodies(kernels: Kernels) -> str:
    lines = [HEAD]
    for body, index in kernels.bodies.items():
        lines.append(f"struct fused_{index} {{")
        lines.append(f"  static constexpr int inputs = {body.inputs}, numbers = {body.numbers};")
        packed = "true" if index in kernels.packed else "false"
        lines.append(f"  static constexpr bool packed = {packed};")
        lines.append("  template <class T>")
        params = ", ".join(f"[[maybe_unused]] T x{i}" for i in range(MAX_INPUTS))
        lines.append(f"  RB_INLINE T f({params}, [[maybe_unused]] const T* p) {{")
        lines += [f"    {s}" for s in body.statements]
        lines.append(f"    return {body.result};\n  }}\n}};")
    names = ", ".join(f"fused_{i}" for i in kernels.bodies.values())
    lines.append(
        f"constexpr FusedBody kBodies[] = {{{', '.join(f'body<{n}>()' for n in names.split(', '))}}};"
    )
    return "\n".join(lines) + "\n"


def write_tree(tree: Tree, indent: str) -> Iterator[str]:
    if isinstance(tree, Leaf):
        for i, (index, is_number) in enumerate(tree.inputs):
            if is_number:
                yield f"{indent}o.constants[{i}] = number(v[{index}]);"
                continue
            yield f"{indent}if (!is_tensor(v[{index}])) return -1;"
            yield f"{indent}o.in[{i}] = v[{index}].v.t;"
        for i, text in enumerate(tree.numbers):
            yield f"{indent}o.numbers[{i}] = {text};"
        yield f"{indent}return {tree.body};"
        return
    for condition, branch in tree:
        yield f"{indent}if ({condition}) {{"
        yield from write_tree(branch, indent + "  ")
        yield f"{indent}}}"
    yield f"{indent}return -1;"


def write_kernels(kernels: Kernels) -> str:
    lines = [HEAD, "constexpr FusedShape kShapes[] = {"]
    for body, index in kernels.bodies.items():
        lines.append(f"    {{{body.inputs}, {'true' if index in kernels.heavy else 'false'}}},")
    lines.append("};")
    for i, (name, _, tree) in enumerate(kernels.kernels):
        lines.append(f"// {name}")
        lines.append(f"int choose_{i}(const RbValue* v, FusedOperands& o) {{")
        lines += write_tree(tree, "  ")
        lines.append("}")
    lines.append("const FusedKernel kKernels[] = {")
    for i, (name, text, _) in enumerate(kernels.kernels):
        op, _, argument = name.partition(".vjp.")
        names = [p.name for p in kernels.records[op].params]
        index = names.index(argument) if argument else -1
        count = len(names) + (2 if argument else 0)
        lines.append(f'    {{"{op}", {index}, R"~({text})~", choose_{i}, {count}}},')
    lines.append("};")
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:  # an equal file rebuilds nothing
        path.write_text(text)


def main(records: str, ops_h: str, output: str) -> None:
    kernels = Kernels(read_records(Path(records)), read_functions(Path(ops_h)))
    if not kernels.kernels:
        raise SystemExit(f"{records}: no record with an elementwise formula")
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "fused_bodies.inc", write_bodies(kernels))
    write(folder / "fused_kernels.inc", write_kernels(kernels))


if __name__ == "__main__":
    main(*sys.argv[1:])
