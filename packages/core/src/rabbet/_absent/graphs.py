"""Captured graphs: fx, and the private modules of PyTorch's compilers."""

from typing import Any

from .. import _C
from .._settings import SymBool, SymFloat, SymInt
from . import Absent, unchanged

_REASON = "rabbet has none of PyTorch's compilers; rabbet.graph captures programs"


def _is_plain(*kinds: type) -> Any:
    """Whether a value is of one of the given types. Every size is a plain number, since nothing is traced."""

    def is_plain(a: Any) -> bool:
        return type(a) in kinds

    return is_plain


def _no_symbols(val: Any) -> bool:
    """Whether a value contains symbols. It never does."""
    return False


def _set_of_symbols(val: Any) -> set[Any]:
    """The symbols in a value. There are none."""
    return set()


def _itself(a: Any) -> Any:
    """The value, which is a number already."""
    return a


def _equal(x: Any, y: Any) -> bool:
    """Whether two numbers, or two sequences of them, are equal."""
    if isinstance(x, (tuple, list)):
        return len(x) == len(y) and all(map(_equal, x, y))
    return bool(x == y)


# Questions about sizes that a tracer may not know. In eager code all sizes are known.
_SYMBOLS: dict[str, Any] = {
    "free_symbols": _set_of_symbols, "free_unbacked_symbols": _set_of_symbols, "guard_float": float,
    "guard_int": int, "guard_or_false": bool, "guard_or_true": bool, "guard_scalar": _itself,
    "guard_size_oblivious": bool, "guarding_hint_or_throw": _itself, "has_free_symbols": _no_symbols,
    "has_free_unbacked_symbols": _no_symbols, "has_symbolic_sizes_strides": _no_symbols,
    "is_concrete_bool": _is_plain(bool), "is_concrete_float": _is_plain(float), "is_concrete_int": _is_plain(int),
    "is_nested_int": _no_symbols, "statically_known_false": lambda x: not x, "statically_known_true": bool,
    "sym_and": lambda *x: all(x), "sym_eq": _equal, "sym_or": lambda *x: any(x),
}  # fmt: skip

TABLE: dict[str, Absent] = {
    "_decomp": Absent(
        _REASON,
        functions="core_aten_decompositions get_decompositions register_decomposition",
    ),
    "_decomp.decompositions": Absent(_REASON),
    "_functorch": Absent(_REASON),
    "_functorch._aot_autograd": Absent(_REASON),
    "_functorch._aot_autograd.functional_utils": Absent(
        _REASON,
        functions="from_fun to_fun",
    ),
    "_functorch.aot_autograd": Absent(
        _REASON,
        functions="aot_export_module aot_function aot_module aot_module_simplified make_boxed_compiler "
        "make_boxed_func",
    ),
    "_functorch.apis": Absent(_REASON),
    "_functorch.compilers": Absent(
        _REASON,
        functions="draw_graph nop ts_compile",
    ),
    "_functorch.config": Absent(_REASON),
    "_functorch.eager_transforms": Absent(_REASON),
    "_functorch.make_functional": Absent(
        _REASON,
        functions="make_functional make_functional_with_buffers",
    ),
    "_functorch.partitioners": Absent(
        _REASON,
        functions="default_partition min_cut_rematerialization_partition",
    ),
    "_functorch.vmap": Absent(
        "rabbet does not show how its transforms wrap tensors; func.vmap batches functions",
        functions="_add_batch_dim _broadcast_to_and_flatten _create_batched_inputs _get_name "
        "_maybe_remove_batch_dim _process_batched_inputs _remove_batch_dim _unwrap_batched "
        "_validate_and_get_batch_size",
        others={"Tensor": _C.Tensor},
        imports={"utils._pytree": "tree_flatten tree_unflatten"},
    ),
    "_guards": Absent(
        _REASON,
        functions="CompileContext.get "
        "TracingContext.clear_frame TracingContext.current_frame "
        "TracingContext.extract_stack TracingContext.get TracingContext.get_traced_code "
        "TracingContext.patch TracingContext.report_output_strides "
        "TracingContext.set_current_loc detect_fake_mode",
        classes="CompileContext CompileId Guard Source TracingContext",
        answers={
            "CompileContext.current_compile_id": None,
            "CompileContext.current_trace_id": None,
            "CompileContext.try_get": None,
            "TracingContext.try_get": None,
            "active_fake_mode": None,
        },
    ),
    "_higher_order_ops": Absent(
        _REASON,
        functions="associative_scan cond flex_attention scan while_loop",
    ),
    "_higher_order_ops.associative_scan": Absent(_REASON, functions="associative_scan"),
    "_higher_order_ops.cond": Absent(_REASON, functions="cond"),
    "_higher_order_ops.flex_attention": Absent(_REASON, functions="flex_attention"),
    "_higher_order_ops.scan": Absent(_REASON, functions="scan"),
    "_higher_order_ops.while_loop": Absent(_REASON, functions="while_loop"),
    "_inductor": Absent(
        _REASON,
        functions="cudagraph_mark_step_begin list_mode_options",
    ),
    "_inductor.compile_fx": Absent(
        _REASON,
        functions="compile_fx",
    ),
    "_inductor.config": Absent(_REASON),  # options that programs set; nothing reads them
    "_inductor.cpu_vec_isa": Absent(
        _REASON,
        functions="pick_vec_isa",
    ),
    "_inductor.runtime": Absent(_REASON),
    "_inductor.runtime.cache_dir_utils": Absent(
        _REASON,
        functions="cache_dir",
    ),
    "_inductor.utils": Absent(_REASON),
    "_prims_common": Absent(
        _REASON,
        functions="is_contiguous_or_false make_contiguous_strides_for",
        others={
            "DeviceLikeType": str | int | _C.device,
            "NumberType": bool | int | float | complex,
            "ShapeType": Any,
            "TensorLikeType": _C.Tensor,
        },
    ),
    "fx": Absent(
        _REASON,
        imports={
            "fx._symbolic_trace": "Tracer symbolic_trace wrap",
            "fx.graph": "Graph",
            "fx.graph_module": "GraphModule",
            "fx.interpreter": "Interpreter Transformer",
            "fx.node": "Node has_side_effect map_arg",
            "fx.proxy": "Proxy",
            "fx.subgraph_rewriter": "replace_pattern",
        },
    ),
    "fx._pytree": Absent(
        _REASON,
        functions="tree_flatten_spec",
        answers={"register_pytree_flatten_spec": None},  # for the tracer, which refuses
    ),
    "fx._symbolic_trace": Absent(
        _REASON,
        functions="symbolic_trace",
        classes="Tracer",
        answers={"is_fx_symbolic_tracing": False, "is_fx_tracing": False},
        others={"wrap": unchanged},  # marks functions for a tracer; eager code calls them
    ),
    "fx.annotate": Absent(
        _REASON,
        functions="annotate",
    ),
    "fx.experimental": Absent(_REASON),
    "fx.experimental.const_fold": Absent(
        _REASON,
        functions="get_unique_attr_name_in_module split_const_subgraphs",
        classes="FoldedGraphModule",
    ),
    "fx.experimental.normalize": Absent(
        _REASON,
        classes="NormalizeArgs NormalizeOperators",
    ),
    "fx.experimental.optimization": Absent(
        _REASON,
        functions="extract_subgraph fuse gen_mkl_autotuner matches_module_pattern modules_to_mkldnn "
        "optimize_for_inference remove_dropout replace_node_module reset_modules "
        "use_mkl_length",
        classes="MklSubgraph UnionFind",
    ),
    "fx.experimental.proxy_tensor": Absent(
        _REASON,
        functions="ProxyTorchDispatchMode.is_infra_mode decompose disable_proxy_modes_tracing "
        "dispatch_trace fetch_object_proxy fetch_sym_proxy get_innermost_proxy_mode "
        "get_proxy_slot handle_sym_dispatch make_fx maybe_disable_thunkify "
        "maybe_enable_thunkify selective_decompose track_tensor_tree",
        classes="DecompositionInterpreter ProxyTorchDispatchMode PythonKeyTracer _ProxyTensor _SymNodeDict",
        answers={"get_proxy_mode": None},
        others={"py_sym_types": (SymInt, SymFloat, SymBool)},
    ),
    "fx.experimental.symbolic_shapes": Absent(
        _REASON,
        functions="is_accessor_node is_symbol_binding_fx_node optimization_hint rebind_unbacked "
        "resolve_unbacked_bindings",
        classes="ConvertIntKey ShapeEnv Specialization StatefulSymbolicContext StatelessSymbolicContext "
        "SubclassSymbolicContext SymIntEqByExpr SymIntSymbolicContext SymbolicContext TrackedFake "
        "ValueRangesSLoc",
        errors={
            "GuardOnDataDependentSymNode": RuntimeError,
        },
        others={
            "CURRENT_NODE_KEY": "current_node",
            "SHAPEENV_EVENT_KEY": "shapeenv_event",
            **_SYMBOLS,
        },
    ),
    "fx.experimental.unification": Absent(_REASON),
    "fx.graph": Absent(
        _REASON,
        functions="Graph.create_node",
        classes="CodeGen Graph PythonCode",
    ),
    "fx.graph_module": Absent(
        _REASON,
        functions="_assign_attr _copy_attr reduce_graph_module reduce_package_graph_module",
        classes="GraphModule _CodeOnlyModule",
        others={"_USER_PRESERVED_ATTRIBUTES_KEY": "_user_preserved_attributes"},
    ),
    "fx.immutable_collections": Absent(
        _REASON,
        classes="immutable_dict immutable_list",
    ),
    "fx.interpreter": Absent(
        _REASON,
        classes="Interpreter Transformer",
    ),
    "fx.node": Absent(
        _REASON,
        functions="map_aggregate map_arg",
        classes="Node",
        others={
            "Argument": Any,
            "Target": Any,
            "has_side_effect": unchanged,
        },
    ),
    "fx.operator_schemas": Absent(
        _REASON,
        functions="check_for_mutable_operation create_type_hint get_signature_for_torch_op "
        "normalize_function normalize_module type_matches",
        classes="ArgsKwargsPair",
    ),
    "fx.passes": Absent(_REASON),
    "fx.passes.fake_tensor_prop": Absent(
        _REASON,
        classes="FakeTensorProp",
    ),
    "fx.passes.graph_drawer": Absent(
        _REASON,
        classes="FxGraphDrawer",
    ),
    "fx.passes.infra": Absent(_REASON),
    "fx.passes.infra.pass_base": Absent(
        _REASON,
        classes="PassBase PassResult",
    ),
    "fx.passes.infra.pass_manager": Absent(
        _REASON,
        functions="pass_result_wrapper this_before_that_pass_constraint",
        classes="PassManager",
    ),
    "fx.passes.shape_prop": Absent(
        _REASON,
        classes="ShapeProp TensorMetadata",
    ),
    "fx.passes.split_module": Absent(
        _REASON,
        functions="split_module split_module_simple",
        classes="Partition",
    ),
    "fx.proxy": Absent(
        _REASON,
        classes="Attribute GraphAppendingTracer MetaProxy ParameterProxy Proxy Scope ScopeContextManager "
        "TracerBase",
        errors={
            "TraceError": ValueError,
        },
    ),
    "fx.subgraph_rewriter": Absent(
        _REASON,
        functions="replace_pattern replace_pattern_with_filters",
        classes="Match ReplacedPatterns",
    ),
    "fx.traceback": Absent(
        _REASON,
        functions="annotate annotate_fn format_stack get_current_meta get_current_replay_node "
        "get_graph_provenance_json has_preserved_node_meta preserve_node_meta "
        "reset_grad_fn_seq_nr set_current_meta set_current_replay_node set_grad_fn_seq_nr "
        "set_stack_trace",
        classes="NodeSource",
        enums={
            "NodeSourceAction": {"CREATE": "create", "REPLACE": "replace"},
        },
    ),
    "utils._sympy": Absent(_REASON),
    "utils._sympy.numbers": Absent(
        _REASON,
        classes="IntInfinity",
    ),
    "utils._sympy.value_ranges": Absent(
        _REASON,
        functions="ValueRanges.convex_min_zero_map ValueRanges.coordinatewise_increasing_map "
        "ValueRanges.coordinatewise_monotone_map ValueRanges.decreasing_map "
        "ValueRanges.increasing_map ValueRanges.monotone_map ValueRanges.unknown "
        "ValueRanges.unknown_bool ValueRanges.unknown_int ValueRanges.wrap",
        classes="ValueRanges",
    ),
}
