"""Attention whose scores a function changes and another masks (Dong et al. 2024), computed eagerly."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

import rabbet
from rabbet import Tensor

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "FlexKernelOptions",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

MaskMod = Callable[..., Tensor]
ScoreMod = Callable[..., Tensor]


_DEFAULT_SPARSE_BLOCK_SIZE = 128


class FlexKernelOptions(TypedDict, total=False):
    """Options of PyTorch's fused kernels; they change nothing here."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    WRITE_DQ: bool
    FORCE_USE_FLEX_ATTENTION: bool
    USE_TMA: bool
    BACKEND: str


class AuxRequest(NamedTuple):
    """What `flex_attention` returns beside the output."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for: the log of the sum of the exponentials of each row's scores, and their maximum."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """The mask that keeps everything."""
    return batch.new_ones(size=(), dtype=rabbet.bool)


def _check_masks(mask_mods: tuple[Any, ...]) -> None:
    if not all(callable(mask) for mask in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask that keeps what any of `mask_mods` keeps."""
    _check_masks(mask_mods)

    def or_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_zeros((), dtype=rabbet.bool)
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return or_mask


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask that keeps what all of `mask_mods` keep."""
    _check_masks(mask_mods)

    def and_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_ones((), dtype=rabbet.bool)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return and_mask


def _for_every_score(mod: Callable[..., Tensor], takes_score: bool) -> Callable[..., Tensor]:
    """`mod` of one score, for scores (B, H, Q, K) and the indices of each dimension."""
    from rabbet.func import vmap

    before = (0,) if takes_score else ()
    for place in (3, 2, 1, 0):
        mod = vmap(mod, in_dims=(*before, *(0 if i == place else None for i in range(4))))
    return mod


def _indices(sizes: tuple[int, ...], device: Any) -> list[Tensor]:
    return [rabbet.arange(size, dtype=rabbet.int32, device=device) for size in sizes]


def create_mask(
    mod_fn: Callable[..., Tensor],
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
) -> Tensor:
    """The mask (B, H, Q_LEN, KV_LEN) of a mask function, or a score function's scores from zeros.

    Args:
        mod_fn: takes (b, h, q_idx, kv_idx), or (score, b, h, q_idx, kv_idx).
        B, H: numbers of batches and heads; None: 1.
        Q_LEN, KV_LEN: lengths of queries and keys.
        device: where the result lies.
    """
    if not callable(mod_fn):
        raise TypeError(f"create_mask: expected mod_fn to be callable, got {mod_fn!r}")
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(mod_fn).parameters.values()
    count = sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)
    if count not in (4, 5):
        raise AssertionError(f"create_mask: expected mod_fn of 4 or 5 positional args, got {count}")
    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    before = [rabbet.zeros(sizes, device=device)] if count == 5 else []
    values = _for_every_score(mod_fn, count == 5)(*before, *_indices(sizes, device))
    return values.expand(sizes)


def _ordered(dense: Tensor) -> tuple[Tensor, Tensor]:
    """Per row, the number of blocks and the columns, those with a block first."""
    columns = rabbet.argsort(dense.to(rabbet.int32), dim=-1, descending=True, stable=True)
    counts = dense.to(rabbet.int32).sum(-1).to(rabbet.int32)
    return counts, columns.to(rabbet.int32).contiguous()


def _dense(counts: Tensor, columns: Tensor) -> Tensor:
    """The inverse of `_ordered`: 1 where a row has a block."""
    width = columns.shape[-1]
    places = rabbet.arange(width, dtype=rabbet.int32, device=columns.device)
    # Columns behind the count go to an extra one, which is cut off.
    targets = rabbet.where(places < counts.unsqueeze(-1), columns, width).to(rabbet.int64)
    full = rabbet.zeros([*columns.shape[:-1], width + 1], dtype=rabbet.int32, device=columns.device)
    return full.scatter(-1, targets, rabbet.ones_like(targets, dtype=rabbet.int32))[..., :width]


RowTables = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


def _row_tables(part: Tensor, full: Tensor | None) -> RowTables:
    """Counts and columns of the blocks kept in part and of those kept in full."""
    return (*_ordered(part), *((None, None) if full is None else _ordered(full)))


def _block_size(value: int | tuple[int, int], op: str) -> tuple[int, int]:
    sizes = (value, value) if isinstance(value, int) else tuple(value)
    if len(sizes) != 2 or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise ValueError(f"{op}: expected BLOCK_SIZE to be one or two positive ints, got {value!r}")
    return sizes


_TABLES = (
    "kv_num_blocks",
    "kv_indices",
    "full_kv_num_blocks",
    "full_kv_indices",
    "q_num_blocks",
    "q_indices",
    "full_q_num_blocks",
    "full_q_indices",
)
_ORDERS = ("dq_write_order", "dq_write_order_full", "dq_kv_order", "dq_kv_order_spt")


def _sliced_mask_mod_error(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    raise RuntimeError(
        "BlockMask: a slice has no mask_mod, as the function counts from the places before; "
        "set mask_mod on the slice first"
    )


class BlockMask:
    """Which blocks of the scores a mask keeps, in part or in full, and the mask's function.

    For each row of blocks, `kv_num_blocks` and the first columns in `kv_indices` name the blocks kept in part,
    `full_kv_*` those kept in full; `q_*` are the same for columns.
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None,
        q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE),
        mask_mod: MaskMod = noop_mask,
        *,
        dq_write_order: Tensor | None = None,
        dq_write_order_full: Tensor | None = None,
        dq_kv_order: Tensor | None = None,
        dq_kv_order_spt: bool | None = None,
    ) -> None:
        if kv_indices.ndim < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        for axis, counts, columns in (
            ("kv", full_kv_num_blocks, full_kv_indices),
            ("q", full_q_num_blocks, full_q_indices),
        ):
            if (counts is None) != (columns is None):
                raise AssertionError(
                    f"full_{axis}_num_blocks and full_{axis}_indices must be both provided or omitted"
                )
        self.seq_lengths = seq_lengths
        self.kv_num_blocks = kv_num_blocks
        self.kv_indices = kv_indices
        self.full_kv_num_blocks = full_kv_num_blocks
        self.full_kv_indices = full_kv_indices
        self.q_num_blocks = q_num_blocks
        self.q_indices = q_indices
        self.full_q_num_blocks = full_q_num_blocks
        self.full_q_indices = full_q_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod
        self.dq_write_order = dq_write_order
        self.dq_write_order_full = dq_write_order_full
        self.dq_kv_order = dq_kv_order
        self.dq_kv_order_spt = dq_kv_order_spt

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:
        """The mask whose rows of blocks are given; those of the columns follow, if `compute_q_blocks`.

        Args:
            kv_num_blocks: (B, H, rows).
            kv_indices: (B, H, rows, columns).
            full_kv_num_blocks, full_kv_indices: the same of the blocks kept in full.
            BLOCK_SIZE: of a block; one int or those of queries and keys.
            mask_mod: the mask inside the blocks; None: all of it.
            seq_lengths: of queries and keys; None: whole blocks.
        """
        if kv_indices.ndim < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        size = _block_size(BLOCK_SIZE, "BlockMask.from_kv_blocks")
        rows, columns = kv_indices.shape[-2:]
        lengths = seq_lengths or (rows * size[0], columns * size[1])
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError(
                "full_kv_num_blocks and full_kv_indices must be both provided or omitted"
            )
        by_row = (kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)
        none = (None, None, None, None)
        result = cls(lengths, *by_row, *none, BLOCK_SIZE=size, mask_mod=mask_mod or noop_mask)
        if compute_q_blocks:
            part, full = result._dense_tables()
            turned = None if full is None else full.transpose(-2, -1)
            by_column = _row_tables(part.transpose(-2, -1), turned)
            for name, table in zip(_TABLES[4:], by_column, strict=True):
                setattr(result, name, table)
        return result

    def _dense_tables(self) -> tuple[Tensor, Tensor | None]:
        """1 for each block kept in part, and for each kept in full."""
        full = None
        if self.full_kv_num_blocks is not None and self.full_kv_indices is not None:
            full = _dense(self.full_kv_num_blocks, self.full_kv_indices)
        return _dense(self.kv_num_blocks, self.kv_indices), full

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, queries, keys)."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """Lengths, tables, block sizes and function; with `flatten` each length and size an item."""
        lengths: Any = self.seq_lengths if flatten else (self.seq_lengths,)
        sizes: Any = self.BLOCK_SIZE if flatten else (self.BLOCK_SIZE,)
        tables = (getattr(self, name) for name in (*_TABLES, *_ORDERS))
        return (*lengths, *tables, *sizes, self.mask_mod)

    def numel(self) -> int:
        """Number of scores."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """Percentage of scores in blocks that are not kept."""
        blocks = int(self.kv_num_blocks.sum().item())
        if self.full_kv_num_blocks is not None:
            blocks += int(self.full_kv_num_blocks.sum().item())
        return 100 * (1 - blocks * math.prod(self.BLOCK_SIZE) / self.numel())

    def to_dense(self) -> Tensor:
        """(B, H, rows, columns): 1 for each block that is kept, in part or in full."""
        part, full = self._dense_tables()
        return part if full is None else part | full

    def to(self, device: Any) -> BlockMask:
        """The mask with its tables on `device`."""
        tables: dict[str, Any] = {name: getattr(self, name) for name in (*_TABLES, *_ORDERS)}
        moved: dict[str, Any] = {
            k: v.to(device) if isinstance(v, Tensor) else v for k, v in tables.items()
        }
        return BlockMask(
            self.seq_lengths, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod, **moved
        )

    def __getitem__(self, index: Any) -> BlockMask:
        """The tables of some batches, heads and rows; an int keeps its dimension.

        The function counts batches, heads and rows from their old places, so the result has none: give it
        one (`mask.mask_mod = ...`) before use.
        """
        index = index if isinstance(index, tuple) else (index,)
        sizes = self.kv_num_blocks.shape
        if len(index) > len(sizes):
            raise IndexError(f"BlockMask: expected at most {len(sizes)} indices, got {len(index)}")
        places: list[Any] = []
        for item, size in zip(index, sizes, strict=False):
            if isinstance(item, int):
                if not -size <= item < size:
                    raise IndexError(f"BlockMask: index {item} is out of range for size {size}")
                item = slice(item % size, item % size + 1)
            places.append(item)
        tables: dict[str, Any] = {name: getattr(self, name) for name in _TABLES[:4]}
        rows: dict[str, Any] = {
            k: None if v is None else v[tuple(places)] for k, v in tables.items()
        }
        return BlockMask.from_kv_blocks(
            **rows,
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=_sliced_mask_mod_error,
            seq_lengths=self.seq_lengths,
            compute_q_blocks=self.q_indices is not None,
        )

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The mask of the first `new_q_len` queries and `new_kv_len` keys."""
        rows = -(-new_q_len // self.BLOCK_SIZE[0])
        columns = -(-new_kv_len // self.BLOCK_SIZE[1])
        part, full = self._dense_tables()
        cut = None if full is None else full[..., :rows, :columns]
        return BlockMask.from_kv_blocks(
            *_row_tables(part[..., :rows, :columns], cut),
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=self.mask_mod,
            seq_lengths=(new_q_len, new_kv_len),
        )

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """A picture of the blocks of each batch and head: kept, left out, and for several in a cell some kept.

        Args:
            grid_size: the most rows and columns of cells; -1: one cell for each block.
            limit: the most pictures.
        """
        dense = self.to_dense()
        rows, columns = dense.shape[-2:]
        grid = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        steps = [
            1 if most == -1 else max(1, -(-count // most))
            for count, most in zip((rows, columns), grid, strict=True)
        ]
        heads = math.prod(dense.shape[1:-2])
        pictures = []
        for place, blocks in enumerate(dense.reshape([-1, rows, columns])):
            if place == limit:
                pictures.append(
                    "...\nTo print out more, set BlockMask.to_string(limit=N)\n"
                    "You can also index (BlockMask[batch, head]) to choose a specific batch or head"
                )
                break
            where = divmod(place, heads) if dense.ndim == 4 else (place,)
            lines = [str(where)]
            for row in range(0, rows, steps[0]):
                cells = []
                for column in range(0, columns, steps[1]):
                    cell = blocks[row : row + steps[0], column : column + steps[1]]
                    kept = int(cell.sum().item())
                    cells.append("██" if kept == cell.numel() else "░░" if kept else "  ")
                lines.append("".join(cells))
            pictures.append("\n".join(lines) + "\n")
        return "\n".join(pictures)

    def __str__(self) -> str:
        text = f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n"
        return text + self.to_string().rstrip("\n") + "\n)"

    def __repr__(self) -> str:
        fields = []
        for name in _TABLES:
            table = getattr(self, name)
            fields.append(f"{name}={None if table is None else table.shape}")
        fields += [
            f"BLOCK_SIZE={self.BLOCK_SIZE}",
            f"shape={self.shape}",
            f"sparsity={self.sparsity():.2f}%",
            f"mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)}",
        ]
        return "BlockMask(\n    " + ",\n    ".join(fields) + "\n)"


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
    compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:
    """The blocks of a mask function.

    Args:
        mask_mod: takes (b, h, q_idx, kv_idx), each a scalar tensor; True keeps the score.
        B, H: numbers of batches and heads; None: 1, for all.
        Q_LEN, KV_LEN: lengths of queries and keys.
        device: where the tables lie.
        BLOCK_SIZE: of a block; one int or those of queries and keys.
        separate_full_blocks: whether blocks kept in full have tables of their own.
    """
    if compute_dq_write_order:
        raise NotImplementedError(
            "create_block_mask: compute_dq_write_order=True is for a fused kernel that is not there"
        )
    size = _block_size(BLOCK_SIZE, "create_block_mask")
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device).to(rabbet.bool)
    # What lies behind the end is masked, so that a block which reaches over it is never full.
    behind = (0, -KV_LEN % size[1], 0, -Q_LEN % size[0])
    mask = rabbet.nn.functional.pad(mask.to(rabbet.int32), behind)
    rows, columns = mask.shape[2] // size[0], mask.shape[3] // size[1]
    blocks = mask.reshape([*mask.shape[:2], rows, size[0], columns, size[1]])
    counts = blocks.sum([3, 5])
    full = counts == math.prod(size)
    if separate_full_blocks:
        tables = _row_tables((counts > 0) & ~full, full)
    else:
        tables = _row_tables(counts > 0, None)
    return BlockMask.from_kv_blocks(
        *tables, BLOCK_SIZE=size, mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN)
    )


def _check_inputs(query: Tensor, key: Tensor, value: Tensor, block_mask: Any, gqa: bool) -> None:
    if not query.ndim == key.ndim == value.ndim == 4:
        raise NotImplementedError(
            "flex_attention: query, key, and value must be 4D tensors, got "
            f"{query.ndim}D, {key.ndim}D and {value.ndim}D"
        )
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            "Expect query and key/value to have the same embedding dimension "
            f"but got E={query.shape[-1]} and E={key.shape[-1]}."
        )
    if key.shape[:3] != value.shape[:3]:
        raise RuntimeError(
            "flex_attention: expected key and value of the same batches, heads and length, got "
            f"{tuple(key.shape)} and {tuple(value.shape)}"
        )
    batches, kv_batches = query.shape[0], key.shape[0]
    if batches != kv_batches and (block_mask is None or kv_batches != 1):
        raise ValueError(
            "Expect query and key/value to have the same batch size, or non-none block_mask, "
            f"but got block_mask={block_mask}, Bq={batches}, and Bkv={kv_batches}."
        )
    heads, kv_heads = query.shape[1], key.shape[1]
    if not gqa and heads != kv_heads:
        raise ValueError(
            "Expect query and key/value to have the same number of heads "
            f"but got Hq={heads} and Hkv={kv_heads}. Try setting enable_gqa=True for GQA."
        )
    if gqa and heads % kv_heads:
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA "
            f"but got Hq={heads} and Hkv={kv_heads}."
        )
    if block_mask is None:
        return
    if not isinstance(block_mask, BlockMask):
        raise TypeError(
            f"flex_attention: expected block_mask to be a BlockMask, got {block_mask!r}"
        )
    lengths = (query.shape[2], key.shape[2])
    if lengths != tuple(block_mask.seq_lengths):
        larger = all(m >= n for m, n in zip(block_mask.seq_lengths, lengths, strict=True))
        raise ValueError(
            f"block_mask was created for block_mask.shape={block_mask.shape} but got "
            f"q_len={lengths[0]} and kv_len={lengths[1]}. As the block mask was created for a "
            + (
                "larger length than you're using it for, you can either 1. create a new block mask with "
                "the correct length, or 2. 'adjust' the existing block mask to the correct length by "
                "calling block_mask._adjust(q_len, kv_len)."
                if larger
                else "smaller length than you're using it for, you likely need to create a new block mask."
            )
        )


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """`softmax(score_mod(query @ key.T * scale)) @ value`, with the scores that `block_mask` leaves out.

    Args:
        query: (B, Hq, L, E).
        key: (B, Hkv, S, E).
        value: (B, Hkv, S, Ev).
        score_mod: takes (score, b, h, q_idx, kv_idx), each a scalar tensor; its result replaces the score.
        block_mask: its function says which scores stay. A query without any gets zeros.
        scale: None: `1 / sqrt(E)`.
        enable_gqa: whether several heads of queries share one of keys and values.
        return_lse: deprecated: return (output, lse).
        kernel_options: change nothing here.
        return_aux: what to return beside the output, as an `AuxOutput`.

    Returns:
        (B, Hq, L, Ev), in the order of memory of `query`.
    """
    _check_inputs(query, key, value, block_mask, enable_gqa)
    if score_mod is not None and not callable(score_mod):
        raise TypeError(f"flex_attention: expected score_mod to be callable, got {score_mod!r}")
    if return_lse:
        if return_aux is not None:
            raise ValueError(
                "Cannot specify both return_lse and return_aux. "
                "return_lse is deprecated, please use return_aux=AuxRequest(lse=True) instead."
            )
        warnings.warn(
            "return_lse is deprecated and will be removed in v2.10. "
            "Please use return_aux=AuxRequest(lse=True) instead.",
            FutureWarning,
            stacklevel=2,
        )
    batches, heads, length, width = query.shape
    key, value = (_heads_of(t, batches, heads) for t in (key, value))
    # Half precision would lose digits in the sums.
    exact = rabbet.float64 if query.dtype is rabbet.float64 else rabbet.float32
    factor = 1 / math.sqrt(width) if scale is None else scale
    scores = (query.to(exact) @ key.to(exact).transpose(-2, -1)) * factor
    sizes = (batches, heads, length, key.shape[2])
    indices = _indices(sizes, query.device)
    if score_mod is not None:
        scores = _for_every_score(score_mod, True)(scores, *indices).to(exact)
    if block_mask is not None:
        kept = _for_every_score(block_mask.mask_mod, False)(*indices)
        scores = rabbet.where(kept, scores, -math.inf)
    empty = (scores == -math.inf).all(-1, keepdim=True)
    # Finite scores for the empty rows: their gradients are zeros, not NaN.
    weights = rabbet.where(empty, 0.0, scores).softmax(-1)
    weights = rabbet.where(empty, 0.0, weights)
    output = _in_order_of(query, (weights @ value.to(exact)).to(query.dtype))
    if not return_lse and return_aux is None:
        return output
    wanted = AuxRequest(lse=True) if return_aux is None else return_aux
    lse = None
    if wanted.lse:
        row = empty.squeeze(-1)
        lse = rabbet.where(row, -math.inf, rabbet.where(empty, 0.0, scores).logsumexp(-1))
    if return_lse:
        return output, lse
    return output, AuxOutput(lse, scores.amax(-1) if wanted.max_scores else None)


def _heads_of(t: Tensor, batches: int, heads: int) -> Tensor:
    """`t` with each head as often in a row as heads of queries share it."""
    kv_batches, kv_heads, length, width = t.shape
    if (kv_batches, kv_heads) == (batches, heads):
        return t
    share = heads // kv_heads
    spread = t.unsqueeze(2).expand([batches, kv_heads, share, length, width])
    return spread.reshape([batches, heads, length, width])


def _in_order_of(query: Tensor, output: Tensor) -> Tensor:
    """`output` with its dimensions in memory as those of `query`."""
    order = sorted(range(4), key=lambda d: -query.stride(d))
    inverse = [order.index(d) for d in range(4)]
    return output.permute(order).contiguous().permute(inverse)
