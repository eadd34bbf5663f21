"""NumPy's names of keywords, wherever the operators take them."""

from typing import assert_type

import rabbet
from rabbet import Tensor

x = rabbet.arange(6.0).reshape(2, 3)
assert_type(x.sum(axis=0), Tensor)
assert_type(x.sum(axis=(0, 1), keepdims=True), Tensor)
assert_type(rabbet.sum(x, axis=0, keepdims=True), Tensor)
assert_type(rabbet.sum(x, axis=0, keepdim=True), Tensor)
assert_type(rabbet.mean(x, axis=1), Tensor)
assert_type(x.amax(axis=-1, keepdims=True), Tensor)
assert_type(x.cumsum(axis=0), Tensor)
assert_type(rabbet.cumsum(x, axis=0), Tensor)
assert_type(x.softmax(axis=-1), Tensor)
assert_type(rabbet.cat([x, x], axis=1), Tensor)
assert_type(rabbet.stack([x, x], axis=1), Tensor)
assert_type(x.max(axis=1).values, Tensor)
assert_type(rabbet.max(x, axis=1, keepdims=True).indices, Tensor)
assert_type(rabbet.sort(x, axis=0).values, Tensor)
assert_type(x.argmax(axis=1, keepdims=True), Tensor)
assert_type(x.unsqueeze(axis=0), Tensor)
assert_type(x.flip(0, 1), Tensor)
assert_type(rabbet.exp(x=x), Tensor)
assert_type(rabbet.exp(a=x), Tensor)
assert_type(rabbet.sum(a=x, axis=0), Tensor)
assert_type(rabbet.add(x=x, other=x), Tensor)
assert_type(x.clip(a_min=0, a_max=2), Tensor)
