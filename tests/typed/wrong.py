"""Mistakes that a type checker reports: each line ends with the code of its error."""

# ruff: noqa: B018

import rabbet
from rabbet import nn, optim

x = rabbet.randn(2, 3)
number: int = x.sum()  # error: assignment
rabbet.zeross(2)  # error: attr-defined
rabbet.sum(x, axsi=0)  # error: call-overload
x.sum(axsi=0)  # error: call-arg
x.sum(axis="rows")  # error: arg-type
x.summ()  # error: attr-defined
rabbet.cat(x)  # error: arg-type
rabbet.nn.Linaer(3, 4)  # error: attr-defined
nn.Linear(3)  # error: call-arg
nn.Linear("3", 4)  # error: arg-type
optim.SGD([x], learning_rate=0.1)  # error: call-arg
rabbet.optim.swa_util  # error: attr-defined
rabbet.utils.dta  # error: attr-defined
rabbet.func.gradd  # error: attr-defined
rabbet.zeros(2, dtype="float32")  # error: call-overload
rabbet.relu()  # error: call-overload
x @ "text"  # error: operator
x + "text"  # error: operator
