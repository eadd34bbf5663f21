"""What is the tensor itself, what shares its memory and what has its own: as in torch 2.13."""

import pytest
import rabbet
import rabbet.nn

# Calls, by what their result is to the first operand that they name.
ALIASING = {
    'same': [
        'x.real',
        'torch.real(x)',
        'torch.conj(x)',
        'x.conj()',
        'torch.resolve_conj(x)',
        'x.resolve_conj()',
        'x.resolve_neg()',
        'torch.resolve_conj(z)',
        'torch.conj_physical(x)',
        'x.conj_physical()',
        'torch.positive(x)',
        '+x',
        'x.contiguous()',
        'x.to(torch.float32)',
        'x.to("cpu")',
        'x.to(x)',
        'x.float()',
        'x.cpu()',
        'x.type(torch.float32)',
        'x.type_as(x)',
        'i.long()',
        'v.flatten()',
        'torch.broadcast_tensors(x,x)[0]',
        'torch.atleast_1d(x)',
        'torch.atleast_2d(x)',
        'torch.as_tensor(x)',
        'torch.asarray(x)',
        'torch.cartesian_prod(v)',
        'torch.dropout(x,0.5,False)',
        'torch.nn.functional.dropout(x,0.5,False)',
        'torch.nn.functional.dropout(x,0.0)',
        'torch.nn.Identity()(x)',
        'torch.nn.Flatten()(x)',
        'x.to(torch.device("cpu"))',
        'x.to(device="cpu",dtype=torch.float32)',
        'x.to(torch.float32,non_blocking=True)',
        'x.contiguous(memory_format=torch.contiguous_format)',
        'x.to(memory_format=torch.preserve_format)',
        'x.to(memory_format=torch.contiguous_format)',
    ],
    'memory': [
        'x.expand(4,6)',
        'x.expand(-1,-1)',
        'v.expand(3,4)',
        'x.expand_as(x)',
        'x.reshape(4,6)',
        'x.reshape(24)',
        'x.reshape_as(x)',
        'x.view(4,6)',
        'x.view(24)',
        'x.view_as(x)',
        'x.flatten()',
        's.flatten()',
        'torch.flatten(x)',
        'x.ravel()',
        'v.ravel()',
        'torch.ravel(v)',
        'x.squeeze()',
        'x.squeeze(0)',
        'x[None].squeeze(0)',
        'x.unsqueeze(0)',
        'torch.broadcast_to(x,(4,6))',
        'torch.broadcast_to(v,(3,4))',
        'torch.broadcast_tensors(v,x.t())[0]',
        'torch.atleast_1d(s)',
        'torch.atleast_2d(v)',
        'torch.atleast_3d(x)',
        'torch.atleast_3d(x[None])',
        'x.chunk(2)[0]',
        'x.chunk(1)[0]',
        'x.tensor_split(2)[0]',
        'x.tensor_split(1)[0]',
        'x.tensor_split((1,))[0]',
        'x.split(2)[0]',
        'x.split(4)[0]',
        'torch.hsplit(x,2)[0]',
        'torch.vsplit(x,2)[0]',
        'x.unbind()[0]',
        'x[0:4]',
        'x[:]',
        'x[...]',
        'x[0]',
        'x[:,::2]',
        'x[None]',
        'x.t()',
        'v.t()',
        's.t()',
        'x.T',
        'v.T',
        'x.mT',
        'x.transpose(0,1)',
        'x.transpose(0,0)',
        'x.permute(0,1)',
        'x.swapaxes(0,1)',
        'x.movedim(0,1)',
        'x.moveaxis(0,0)',
        'x.diagonal()',
        'torch.narrow(x,0,0,4)',
        'x.select(0,0)',
        'x.detach()',
        'x.data',
        'x.unflatten(0,(2,2))',
        'torch.as_strided(x,(2,2),(1,1))',
        'torch.meshgrid(v,v,indexing="ij")[0]',
        'torch.meshgrid(v,indexing="ij")[0]',
        'torch.squeeze(s)',
        'torch.einsum("ij->ij",x)',
        'torch.einsum("ij->ji",x)',
        'x.view(torch.int32)',
        'torch.movedim(x,0,0)',
        'x.expand(2,4,6)',
        'torch.swapdims(x,0,1)',
        'x.H',
        'x.mH',
    ],
    'own': [
        'x.repeat(1,1)',
        'v.repeat(1)',
        'x.repeat(2,1)',
        's.repeat(1)',
        't.contiguous()',
        'x.to(torch.float32,copy=True)',
        'x.to(torch.float64)',
        'x.double()',
        't.reshape(24)',
        't.flatten()',
        't.ravel()',
        'x[[0,1]]',
        'x[i>0]',
        'x[i]',
        'torch.diag(x[:,:4])',
        'torch.diag(v)',
        'x.narrow(0,1,2)',
        'x.clone()',
        'torch.asarray(x,copy=True)',
        'torch.tensor(x.tolist())',
        'torch.clamp(x,min=-9)',
        'torch.relu(x)',
        'torch.abs(x)',
        'x.add(0)',
        'x.mul(1)',
        'x.round()',
        'i.round()',
        'i.floor()',
        'i.ceil()',
        'i.trunc()',
        'torch.floor(i)',
        'torch.sum(s)',
        'x.sum(())',
        'torch.cat([x])',
        'torch.cat([x,x[:0]])',
        'torch.stack([x])[0]',
        'torch.vstack([x])',
        'torch.hstack([x])',
        'torch.tile(x,(1,1))',
        'torch.roll(x,0)',
        'x.flip(())',
        'torch.triu(x,-9)',
        'torch.where(x>=0,x,x)',
        'x.masked_fill(x<-9,0)',
        'torch.block_diag(x)',
        'x.pow(1)',
        'x**1',
        'torch.nn.functional.pad(x,(0,0))',
        'torch.nan_to_num(i)',
        'x.index_select(0,i)',
        'x.gather(0,i[:,None])',
        'x.sort(stable=True)[0]',
        'torch.column_stack([x])',
        'torch.dstack([x[...,None]])',
        'torch.tril(x,9)',
        'x.type(torch.float64)',
        'x.bool()',
        'torch.zeros_like(x)',
        'x.new_tensor(x.tolist())',
        'torch.cumsum(s,0)',
        'torch.Tensor.clone(x)',
    ],
}  # fmt: skip
CASES = [pytest.param(call, kind, id=call) for kind, calls in ALIASING.items() for call in calls]


def operands():
    """The tensors that the calls name."""
    x = rabbet.arange(24.0).reshape(4, 6)
    return {
        "x": x, "t": x.t(), "v": rabbet.arange(4.0), "s": rabbet.tensor(1.0), "i": rabbet.arange(4),
        "z": rabbet.arange(6.0).reshape(2, 3).to(rabbet.complex64),
    }  # fmt: skip


def first_operand(call, named):
    """The operand that stands first in the call."""
    code = compile(call, "<call>", "eval")
    return named[next(name for name in code.co_names if name in named)]


@pytest.mark.parametrize(("call", "kind"), CASES)
def test_results_share_memory_as_in_torch(call, kind):
    named = operands()
    operand = first_operand(call, named)
    out = eval(call, {"torch": rabbet, **named})
    found = (
        "same" if out is operand else "memory" if out.data_ptr() == operand.data_ptr() else "own"
    )
    assert found == kind


@pytest.mark.parametrize("name", ["real", "conj", "conj_physical", "resolve_conj", "positive"])
def test_real_input_comes_back_with_its_history(name):
    f = getattr(rabbet, name)
    x = rabbet.rand(3).requires_grad_()
    y = x * 2
    assert f(y) is y
    f(y).sum().backward()
    assert x.grad.tolist() == [2.0] * 3
    assert rabbet.vmap(lambda t: f(t) * 2)(rabbet.ones(2, 3)).tolist() == [[2.0] * 3] * 2
    with rabbet.autocast("cpu"):
        assert f(y) is y
    with pytest.raises(TypeError):
        f("x")


def test_conj_of_complex_input_is_computed():
    z = rabbet.tensor([1 + 2j, 3 - 1j])
    assert rabbet.conj(z).tolist() == [1 - 2j, 3 + 1j]


@pytest.mark.parametrize("repeats", [(1, 1), (2, 1), (1, 3), (1, 1, 1), (0, 1)])
def test_repeat_copies(repeats):
    x = rabbet.arange(6.0).reshape(2, 3)
    out = x.repeat(*repeats)
    assert out.is_contiguous()
    before = out.tolist()
    x.fill_(-1)
    assert out.tolist() == before
