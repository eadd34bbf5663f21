"""Exported programs: ONNX, and what `rabbet.export` of the wheel rabbet-graph leaves out."""

import enum

from . import Absent, marks_nothing

_REASON = "rabbet has no exporter yet"
_ONE_FORM = "exported programs of rabbet have one form: a rabbet.graph.Graph"
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

TABLE: dict[str, Absent] = {
    "export._trace": Absent(_ONE_FORM, functions="_export"),
    "export.decomp_utils": Absent(
        _ONE_FORM,
        classes="CustomDecompTable",
    ),
    "export.experimental": Absent(_ONE_FORM),
    "export.passes": Absent(
        _ONE_FORM,
        functions="move_to_device_pass",
    ),
    "export.unflatten": Absent(
        _ONE_FORM,
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
