"""Exported programs: ONNX and torch.export."""

import enum

from . import Absent, marks_nothing

_REASON = "rabbet has no exporter yet"
_CONSTANTS: dict[str, str | dict[str, int]] = {
    "OperatorExportTypes": {
        "ONNX": 0,
        "ONNX_ATEN": 1,
        "ONNX_ATEN_FALLBACK": 2,
        "ONNX_FALLTHROUGH": 3,
    },
    "TrainingMode": {"EVAL": 0, "PRESERVE": 1, "TRAINING": 2},
}
# The numbers of the ONNX format.
TensorProtoDataType = enum.Enum(
    "TensorProtoDataType",
    "UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 COMPLEX128 "
    "BFLOAT16 FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ",
    start=0,
)
_DTYPES = {
    "Byte": "UINT8", "Char": "INT8", "Double": "DOUBLE", "Float": "FLOAT", "Half": "FLOAT16", "Int": "INT32",
    "Long": "INT64", "Short": "INT16", "Bool": "BOOL", "ComplexFloat": "COMPLEX64", "ComplexDouble": "COMPLEX128",
    "BFloat16": "BFLOAT16", "Undefined": "UNDEFINED",
}  # fmt: skip
_DimHint = enum.Enum("_DimHint", "AUTO DYNAMIC STATIC")

TABLE: dict[str, Absent] = {
    "export": Absent(
        _REASON,
        functions="draft_export export load register_dataclass save",
        imports={
            "export.decomp_utils": "CustomDecompTable",
            "export.dynamic_shapes": "AdditionalInputs Dim ShapesCollection dims",
            "export.exported_program": "ExportedProgram ModuleCallEntry ModuleCallSignature default_decompositions",
            "export.graph_signature": "ExportBackwardSignature ExportGraphSignature",
            "export.unflatten": "FlatArgsAdapter UnflattenedModule unflatten",
        },
    ),
    "export._trace": Absent(_REASON, functions="_export"),
    "export.decomp_utils": Absent(
        _REASON,
        classes="CustomDecompTable",
    ),
    "export.dynamic_shapes": Absent(
        _REASON,
        functions="dims refine_dynamic_shapes_from_suggested_fixes",
        classes="AdditionalInputs Dim ShapesCollection",
        others={
            "Dim.AUTO": _DimHint.AUTO,
            "Dim.DYNAMIC": _DimHint.DYNAMIC,
            "Dim.STATIC": _DimHint.STATIC,
        },
    ),
    "export.experimental": Absent(_REASON),
    "export.exported_program": Absent(
        _REASON,
        functions="default_decompositions",
        classes="ExportedProgram ModuleCallEntry ModuleCallSignature",
    ),
    "export.graph_signature": Absent(
        _REASON,
        classes="ConstantArgument CustomObjArgument ExportBackwardSignature ExportGraphSignature InputSpec "
        "OutputSpec SymBoolArgument SymFloatArgument SymIntArgument TensorArgument",
        enums={
            "InputKind": "USER_INPUT PARAMETER BUFFER CONSTANT_TENSOR CUSTOM_OBJ TOKEN",
            "OutputKind": "USER_OUTPUT LOSS_OUTPUT BUFFER_MUTATION PARAMETER_MUTATION GRADIENT_TO_PARAMETER "
            "GRADIENT_TO_USER_INPUT USER_INPUT_MUTATION TOKEN",
        },
    ),
    "export.passes": Absent(
        _REASON,
        functions="move_to_device_pass",
    ),
    "export.unflatten": Absent(
        _REASON,
        functions="unflatten",
        classes="FlatArgsAdapter InterpreterModule InterpreterModuleDispatcher UnflattenedModule",
    ),
    "onnx": Absent(
        _REASON,
        functions="export is_onnxrt_backend_supported",
        answers={
            "is_in_onnx_export": False,
            # for export(), which refuses
            "register_custom_op_symbolic": None,
            "unregister_custom_op_symbolic": None,
        },
        classes="ExportableModule InputObserver ONNXProgram",
        enums=_CONSTANTS,
        others={"TensorProtoDataType": TensorProtoDataType},
        errors={
            "OnnxExporterError": RuntimeError,
        },
    ),
    "onnx._constants": Absent(_REASON),
    "onnx._internal": Absent(_REASON),
    "onnx.errors": Absent(
        _REASON,
        errors={
            "OnnxExporterWarning": UserWarning,
            "SymbolicValueError": RuntimeError,
            "UnsupportedOperatorError": RuntimeError,
        },
    ),
    "onnx.operators": Absent(
        _REASON,
        functions="reshape_from_tensor_shape shape_as_tensor",
    ),
    "onnx.ops": Absent(
        _REASON,
        functions="aten_decompositions attention rotary_embedding symbolic symbolic_multi_out",
    ),
    "onnx.symbolic_helper": Absent(
        _REASON,
        others={
            "cast_pytorch_to_onnx": {k: TensorProtoDataType[v] for k, v in _DTYPES.items()},
            "parse_args": marks_nothing,
        },
    ),
    "onnx.symbolic_opset10": Absent(_REASON),
    "onnx.symbolic_opset11": Absent(
        _REASON,
        functions="select squeeze unsqueeze",
    ),
    "onnx.symbolic_opset12": Absent(
        _REASON,
        functions="dropout",
    ),
    "onnx.symbolic_opset13": Absent(_REASON),
    "onnx.symbolic_opset14": Absent(_REASON),
    "onnx.symbolic_opset9": Absent(
        _REASON,
        functions="masked_fill softmax",
    ),
    "onnx.utils": Absent(
        _REASON, imports={"onnx": "export is_in_onnx_export register_custom_op_symbolic"}
    ),
    "onnx.verification": Absent(
        _REASON,
        functions="VerificationInfo.from_tensors verify_onnx_program",
        classes="VerificationInfo",
    ),
}
