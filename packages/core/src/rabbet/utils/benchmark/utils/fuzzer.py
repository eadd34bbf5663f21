"""Fuzzer: random parameters, and tensors of sizes that they give."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import rabbet

__all__ = ["FuzzedParameter", "FuzzedTensor", "Fuzzer", "ParameterAlias"]

_MAX_TRIES = 1000  # draws in a row that no configuration may fail


def _random_state(seed: int | None) -> Any:
    try:
        import numpy as np
    except ModuleNotFoundError as error:
        raise ImportError(
            "rabbet.utils.benchmark.Fuzzer needs the package 'numpy': pip install numpy"
        ) from error
    return np.random.RandomState(seed)


class ParameterAlias:
    """A value in the distribution of a `FuzzedParameter` that stands for the value of another parameter.

    Example:
        >>> str(ParameterAlias("x_len"))
        'ParameterAlias[alias_to: x_len]'
    """

    def __init__(self, alias_to: str) -> None:
        self.alias_to = alias_to

    def __repr__(self) -> str:
        return f"ParameterAlias[alias_to: {self.alias_to}]"


class FuzzedParameter:
    """A random number.

    Args:
        name: what tensors and constraints call it.
        minval, maxval: the limits, both included; integers unless one of them is a float.
        distribution: 'uniform', 'loguniform', or a dict of choices and their probabilities.
        strict: keep the value while the parameters that are not strict are drawn again.

    Raises:
        ValueError: for limits that are missing or come with a dict, probabilities that do not sum to 1, and other
            distributions.
    """

    def __init__(
        self,
        name: str,
        minval: float | None = None,
        maxval: float | None = None,
        distribution: str | dict[Any, float] | None = None,
        strict: bool = False,
    ) -> None:
        self._name = name
        self._minval, self._maxval = minval, maxval
        self._distribution = self._check_distribution(distribution)
        self.strict = strict

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self._name

    def _check_distribution(self, distribution: Any) -> Any:
        where = f"FuzzedParameter({self._name!r})"
        limits = self._minval, self._maxval
        if isinstance(distribution, dict):
            if limits != (None, None):
                raise ValueError(
                    f"{where}: minval and maxval must be None with a dict as distribution, got {limits}"
                )
            total = math.fsum(distribution.values())
            if abs(total - 1) > 1e-3 or min(distribution.values()) < 0:
                raise ValueError(
                    f"{where}: the probabilities of the distribution must be non-negative and sum to 1, got "
                    f"{list(distribution.values())}"
                )
            return distribution
        if distribution not in ("uniform", "loguniform"):
            raise ValueError(
                f"{where}: distribution must be 'uniform', 'loguniform' or a dict, got {distribution!r}"
            )
        if None in limits or limits[0] > limits[1]:  # type: ignore[operator]
            raise ValueError(
                f"{where}: expected minval and maxval with minval <= maxval, got {limits}"
            )
        if distribution == "loguniform" and limits[0] <= 0:  # type: ignore[operator]
            raise ValueError(f"{where}: a loguniform minval must be positive, got {limits[0]}")
        return distribution

    def sample(self, state: Any) -> Any:
        """A value, drawn from `state`, a `numpy.random.RandomState`."""
        if isinstance(self._distribution, dict):
            choices = list(self._distribution)
            weights = [p / math.fsum(self._distribution.values()) for p in self._distribution.values()]  # fmt: skip
            return choices[state.choice(len(choices), p=weights)]
        low: Any = self._minval
        high: Any = self._maxval
        is_integer = isinstance(low, int) and isinstance(high, int)
        if self._distribution == "uniform":
            return int(state.randint(low, high + 1)) if is_integer else state.uniform(low, high)
        value = math.exp(state.uniform(math.log(low), math.log(high + 1 if is_integer else high)))
        return min(int(value), high) if is_integer else value


class FuzzedTensor:
    """A random tensor, with sizes and steps that are numbers or names of parameters.

    Args:
        name: its key in the results of the fuzzer.
        size: numbers, or names of parameters.
        steps: slice a larger tensor with these steps.
        probability_contiguous: of a layout with the dimensions in order.
        min_elements, max_elements, max_allocation_bytes: parameters that give tensors beyond these are drawn again.
        dim_parameter: the parameter that tells how many of the sizes count.
        roll_parameter: the parameter by which the sizes and steps are rotated.
        dtype: of the tensor.
        cuda: make it on the GPU.
        tensor_constructor: called with size, dtype and the parameters; by default, random values.

    Raises:
        ValueError: if `steps` is not as long as `size`, or the limits or the probability make no sense.
    """

    def __init__(
        self,
        name: str,
        size: tuple[str | int, ...],
        steps: tuple[str | int, ...] | None = None,
        probability_contiguous: float = 0.5,
        min_elements: int | None = None,
        max_elements: int | None = None,
        max_allocation_bytes: int | None = None,
        dim_parameter: str | None = None,
        roll_parameter: str | None = None,
        dtype: Any = rabbet.float32,
        cuda: bool = False,
        tensor_constructor: Callable[..., Any] | None = None,
    ) -> None:
        where = f"FuzzedTensor({name!r})"
        if steps is not None and len(steps) != len(size):
            raise ValueError(f"{where}: expected {len(size)} steps for size {size}, got {steps}")
        if not 0 <= probability_contiguous <= 1:
            raise ValueError(
                f"{where}: probability_contiguous must be from 0 to 1, got {probability_contiguous}"
            )
        if min_elements is not None and max_elements is not None and min_elements > max_elements:
            raise ValueError(
                f"{where}: min_elements={min_elements} exceeds max_elements={max_elements}"
            )
        self._name = name
        self._size, self._steps = size, steps
        self._probability_contiguous = probability_contiguous
        self._min_elements, self._max_elements = min_elements, max_elements
        self._max_allocation_bytes = max_allocation_bytes
        self._dim_parameter, self._roll_parameter = dim_parameter, roll_parameter
        self._dtype, self._cuda = dtype, cuda
        self._tensor_constructor = tensor_constructor or self.default_tensor_constructor

    @property
    def name(self) -> str:
        """The tensor's name."""
        return self._name

    @staticmethod
    def default_tensor_constructor(size: tuple[int, ...], dtype: Any, **kwargs: Any) -> Any:
        """Numbers from 0 to 1 for floating-point and complex dtypes, from 0 to 126 for integers, and booleans."""
        if dtype.is_floating_point or dtype.is_complex:
            return rabbet.rand(size, dtype=dtype)
        return rabbet.randint(0, 2 if dtype == rabbet.bool else 127, size, dtype=dtype)

    def _number(self, value: Any, params: dict[str, Any]) -> int:
        if isinstance(value, str) and value not in params:
            raise ValueError(
                f"FuzzedTensor({self._name!r}): no parameter is named {value!r}; there are {sorted(params)}"
            )
        return int(params[value] if isinstance(value, str) else value)

    def _get_size_and_steps(self, params: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
        dim = len(self._size)
        if self._dim_parameter is not None:
            dim = self._number(self._dim_parameter, params)
        size = [self._number(s, params) for s in self._size[:dim]]
        steps = [self._number(s, params) for s in (self._steps or (1,) * dim)[:dim]]
        if self._roll_parameter is not None and size:
            shift = self._number(self._roll_parameter, params) % len(size)
            size, steps = (x[len(x) - shift :] + x[: len(x) - shift] for x in (size, steps))
        allocated = (n * step for n, step in zip(size, steps))
        return tuple(size), tuple(steps), tuple(allocated)

    def satisfies_constraints(self, params: dict[str, Any]) -> bool:
        """Whether the tensor that the parameters give is within the limits."""
        size, _, allocated = self._get_size_and_steps(params)
        number = math.prod(size)
        size_in_bytes = math.prod(allocated) * self._dtype.itemsize
        return (
            (self._min_elements is None or number >= self._min_elements)
            and (self._max_elements is None or number <= self._max_elements)
            and (self._max_allocation_bytes is None or size_in_bytes <= self._max_allocation_bytes)
        )

    def _make_tensor(self, params: dict[str, Any], state: Any) -> tuple[Any, dict[str, Any]]:
        _, steps, allocated = self._get_size_and_steps(params)
        is_contiguous = state.uniform() < self._probability_contiguous
        order = list(range(len(allocated)))
        if not is_contiguous and len(order) > 1:
            order = state.permutation(len(order)).tolist()
        made = self._tensor_constructor(
            size=tuple(allocated[i] for i in order), dtype=self._dtype, **params
        )
        if self._cuda:
            made = made.cuda()
        made = made.permute([order.index(i) for i in range(len(order))])
        made = made[tuple(slice(None, None, step) for step in steps)]
        properties = {
            "numel": made.numel(),
            "order": order,
            "steps": steps,
            "is_contiguous": made.is_contiguous(),
            "dtype": str(self._dtype),
        }
        return made, properties


class Fuzzer:
    """Draws parameters, and tensors that they describe.

    Args:
        parameters, tensors: the parameters and tensors to draw; nested lists are flattened.
        constraints: functions of the parameters; parameters for which one returns False are drawn again.
        seed: of NumPy's generator, and of rabbet's before the tensors of each draw.

    Raises:
        ValueError: for elements of other types and for names that come twice.

    Example:
        >>> n = FuzzedParameter("n", 4, 16, "uniform")
        >>> [(tensors, _, params)] = Fuzzer([n], [FuzzedTensor("x", ("n", 3))], seed=0).take(1)
        >>> tensors["x"].shape == (params["n"], 3)
        True
    """

    def __init__(
        self,
        parameters: list[FuzzedParameter | list[FuzzedParameter]],
        tensors: list[FuzzedTensor | list[FuzzedTensor]],
        constraints: list[Callable[..., Any]] | None = None,
        seed: int | None = None,
    ) -> None:
        self._parameters: list[FuzzedParameter] = self._unpack(parameters, FuzzedParameter)
        self._tensors: list[FuzzedTensor] = self._unpack(tensors, FuzzedTensor)
        names = [p.name for p in self._parameters]
        tensor_names = [t.name for t in self._tensors]
        for name in {*names, *tensor_names}:
            if [*names, *tensor_names].count(name) > 1:
                raise ValueError(f"Fuzzer: {name!r} names more than one parameter or tensor")
        self._constraints = constraints or []
        self._seed = seed
        self._rejections = self._total_generated = 0

    @staticmethod
    def _unpack(values: Any, cls: type) -> list[Any]:
        found: list[Any] = []
        for value in values:
            found += value if isinstance(value, (list, tuple)) else [value]
        for value in found:
            if not isinstance(value, cls):
                raise ValueError(
                    f"Fuzzer: expected {cls.__name__} objects, got {type(value).__name__}"
                )
        return found

    def take(self, n: int) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
        """Yield `n` times the tensors, their properties, and the parameters, as dicts by name."""
        state = _random_state(self._seed)
        for _ in range(n):
            params = self._generate(state)
            rabbet.manual_seed(int(state.randint(0, 2**31 - 1)))
            made = {t.name: t._make_tensor(params, state) for t in self._tensors}
            yield (
                {name: tensor for name, (tensor, _) in made.items()},
                {name: properties for name, (_, properties) in made.items()},
                params,
            )

    @property
    def rejection_rate(self) -> float:
        """Which part of the drawn parameters broke a constraint."""
        return self._rejections / self._total_generated if self._total_generated else 0.0

    def _generate(self, state: Any) -> dict[str, Any]:
        strict = {p.name: p.sample(state) for p in self._parameters if p.strict}
        params: dict[str, Any] = {}
        for _ in range(_MAX_TRIES):
            drawn = {p.name: strict[p.name] if p.strict else p.sample(state) for p in self._parameters}  # fmt: skip
            params = self._resolve_aliases(drawn)
            self._total_generated += 1
            if all(c(**params) for c in self._constraints) and all(
                t.satisfies_constraints(params) for t in self._tensors
            ):
                return params
            self._rejections += 1
        raise RuntimeError(
            f"Fuzzer: none of {_MAX_TRIES} draws met the constraints and the limits of the tensors; the last one was "
            f"{params}"
        )

    @staticmethod
    def _resolve_aliases(params: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for name, value in params.items():
            seen = [name]
            while isinstance(value, ParameterAlias):
                if value.alias_to not in params:
                    raise ValueError(
                        f"Fuzzer: {seen[-1]!r} is an alias of {value.alias_to!r}, which is not a parameter"
                    )
                if value.alias_to in seen:
                    raise ValueError(
                        f"Fuzzer: parameters are aliases of each other in a cycle: {seen}"
                    )
                seen.append(value.alias_to)
                value = params[value.alias_to]
            found[name] = value
        return found
