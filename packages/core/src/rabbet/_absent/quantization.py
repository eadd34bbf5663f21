"""Quantized models, and sparsity made by pruning."""

from typing import Any

from . import Absent

_REASON = "rabbet has no quantization package yet"

TABLE: dict[str, Absent] = {
    "ao": Absent(_REASON),
    "ao.nn": Absent(_REASON),
    "ao.nn.intrinsic": Absent(
        _REASON,
        classes="BNReLU2d BNReLU3d ConvAdd2d ConvAddReLU2d ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d "
        "ConvBnReLU3d ConvReLU1d ConvReLU2d ConvReLU3d LinearBn1d LinearLeakyReLU LinearReLU LinearTanh",
    ),
    "ao.nn.intrinsic.qat": Absent(_REASON),
    "ao.nn.intrinsic.quantized": Absent(
        _REASON,
        functions="BNReLU2d.from_float BNReLU2d.from_reference BNReLU3d.from_float "
        "BNReLU3d.from_reference ConvAdd2d.from_float ConvAdd2d.from_reference "
        "ConvAddReLU2d.from_float ConvAddReLU2d.from_reference ConvReLU1d.from_float "
        "ConvReLU1d.from_reference ConvReLU2d.from_float ConvReLU2d.from_reference "
        "ConvReLU3d.from_float ConvReLU3d.from_reference LinearLeakyReLU.from_float "
        "LinearLeakyReLU.from_reference LinearReLU.from_float LinearReLU.from_reference "
        "LinearTanh.from_float LinearTanh.from_reference",
        classes="BNReLU2d BNReLU3d ConvAdd2d ConvAddReLU2d ConvReLU1d ConvReLU2d ConvReLU3d LinearLeakyReLU "
        "LinearReLU LinearTanh",
    ),
    "ao.nn.qat": Absent(_REASON),
    "ao.nn.quantizable": Absent(_REASON),
    "ao.nn.quantized": Absent(
        _REASON,
        functions="BatchNorm2d.from_float BatchNorm3d.from_float Conv1d.from_float Conv2d.from_float "
        "Conv3d.from_float ConvTranspose1d.from_reference ConvTranspose2d.from_reference "
        "ConvTranspose3d.from_reference Dropout.from_float Dropout.from_reference "
        "ELU.from_float ELU.from_reference Embedding.from_float Embedding.from_reference "
        "EmbeddingBag.from_float EmbeddingBag.from_reference GroupNorm.from_float "
        "Hardswish.from_float Hardswish.from_reference InstanceNorm1d.from_float "
        "InstanceNorm1d.from_reference InstanceNorm2d.from_float "
        "InstanceNorm2d.from_reference InstanceNorm3d.from_float "
        "InstanceNorm3d.from_reference LSTM.from_float LSTM.from_observed "
        "LayerNorm.from_float LayerNorm.from_reference LeakyReLU.from_float "
        "LeakyReLU.from_reference Linear.from_float Linear.from_reference "
        "MultiheadAttention.from_float MultiheadAttention.from_observed PReLU.from_float "
        "PReLU.from_reference QFunctional.from_float ReLU6.from_float Sigmoid.from_float "
        "Softmax.from_float Softmax.from_reference",
        classes="BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d "
        "Dropout ELU Embedding EmbeddingBag FXFloatFunctional FloatFunctional GroupNorm Hardswish "
        "InstanceNorm1d InstanceNorm2d InstanceNorm3d LSTM LayerNorm LeakyReLU Linear MultiheadAttention "
        "PReLU QFunctional ReLU6 Sigmoid Softmax",
        imports={
            "ao.nn.quantized.modules": "DeQuantize Quantize",
        },
    ),
    "ao.nn.quantized.dynamic": Absent(_REASON),
    "ao.nn.quantized.modules": Absent(
        _REASON,
        functions="DeQuantize.from_float Quantize.from_float",
        classes="DeQuantize Quantize",
        imports={
            "ao.nn.quantized": "BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d "
            "ConvTranspose3d Dropout ELU Embedding EmbeddingBag FXFloatFunctional FloatFunctional "
            "GroupNorm Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d LSTM LayerNorm "
            "LeakyReLU Linear MultiheadAttention PReLU QFunctional ReLU6 Sigmoid Softmax",
        },
    ),
    "ao.ns": Absent(_REASON),
    "ao.ns.fx": Absent(_REASON),
    "ao.pruning": Absent(
        _REASON,
        functions="fqn_to_module get_arg_info_from_tensor_fqn get_dynamic_sparse_quantized_mapping "
        "get_static_sparse_quantized_mapping module_to_fqn",
        classes="BaseScheduler BaseSparsifier CubicSL FakeSparsity LambdaSL NearlyDiagonalSparsifier WeightNormSparsifier",
    ),
    "ao.quantization": Absent(
        _REASON,
        functions="default_affine_fixed_qparams_fake_quant default_affine_fixed_qparams_observer default_debug_observer "
        "default_fixed_qparams_range_neg1to1_fake_quant default_fixed_qparams_range_neg1to1_observer "
        "default_placeholder_observer default_reuse_input_observer get_combined_dict "
        "convert_dynamic_jit convert_jit default_eval_fn fuse_conv_bn fuse_conv_bn_jit "
        "fuse_conv_bn_relu fuse_convtranspose_bn fuse_linear_bn "
        "get_default_compare_output_module_list get_default_dynamic_quant_module_mappings "
        "get_default_dynamic_sparse_quant_module_mappings "
        "get_default_float_to_quantized_operator_mappings get_default_qat_module_mappings "
        "get_default_qconfig_propagation_list get_default_static_quant_module_mappings "
        "get_default_static_quant_reference_module_mappings "
        "get_default_static_sparse_quant_module_mappings get_dynamic_quant_module_class "
        "get_embedding_qat_module_mappings get_embedding_static_quant_module_mappings "
        "get_fuser_method get_fuser_method_new get_quantized_operator "
        "get_static_quant_module_class no_observer_set prepare_dynamic_jit prepare_jit "
        "quantize_dynamic_jit quantize_jit script_qconfig script_qconfig_dict",
        enums={
            "QuantType": {"DYNAMIC": 0, "STATIC": 1, "QAT": 2, "WEIGHT_ONLY": 3},
        },
        imports={
            "ao.quantization.fake_quantize": "*",
            "ao.quantization.fuse_modules": "*",
            "ao.quantization.observer": "*",
            "ao.quantization.qconfig": "*",
            "ao.quantization.qconfig_mapping": "*",
            "ao.quantization.quantize": "*",
            "ao.quantization.stubs": "*",
        },
        others={"ObserverOrFakeQuantize": Any},
    ),
    "ao.quantization.backend_config": Absent(
        _REASON,
        functions="BackendConfig.from_dict BackendPatternConfig.from_dict DTypeConfig.from_dict "
        "get_executorch_backend_config get_fbgemm_backend_config get_native_backend_config "
        "get_native_backend_config_dict get_onednn_backend_config get_qnnpack_backend_config "
        "get_tensorrt_backend_config get_tensorrt_backend_config_dict",
        classes="BackendConfig BackendPatternConfig DTypeConfig DTypeWithConstraints",
        enums={
            "ObservationType": {
                "OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT": 0,
                "OUTPUT_SHARE_OBSERVER_WITH_INPUT": 1,
                "INPUT_OUTPUT_NOT_OBSERVED": 2,
            },
        },
    ),
    "ao.quantization.fake_quantize": Absent(
        _REASON,
        functions="FakeQuantizeBase.with_args default_dynamic_fake_quant default_embedding_fake_quant "
        "default_embedding_fake_quant_4bit default_fake_quant "
        "default_fixed_qparams_range_0to1_fake_quant default_fused_act_fake_quant "
        "default_fused_per_channel_wt_fake_quant default_fused_wt_fake_quant "
        "default_histogram_fake_quant default_per_channel_weight_fake_quant "
        "default_symmetric_fixed_qparams_fake_quant default_weight_fake_quant "
        "disable_fake_quant disable_observer enable_fake_quant enable_observer "
        "fused_per_channel_wt_fake_quant_range_neg_127_to_127 "
        "fused_wt_fake_quant_range_neg_127_to_127",
        classes="FakeQuantize FakeQuantizeBase FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize",
    ),
    "ao.quantization.fuse_modules": Absent(
        _REASON,
        functions="fuse_known_modules fuse_modules fuse_modules_qat",
    ),
    "ao.quantization.fx": Absent(_REASON),
    "ao.quantization.fx._decomposed": Absent(_REASON),
    "ao.quantization.observer": Absent(
        _REASON,
        functions="AffineQuantizedObserverBase.with_args ObserverBase.with_args "
        "ObserverBase.with_callable_args default_dynamic_quant_observer "
        "default_fixed_qparams_range_0to1_observer default_float_qparams_observer "
        "default_float_qparams_observer_4bit default_histogram_observer default_observer "
        "default_per_channel_weight_observer default_symmetric_fixed_qparams_observer "
        "default_weight_observer get_block_size get_observer_state_dict "
        "load_observer_state_dict per_channel_weight_observer_range_neg_127_to_127 "
        "weight_observer_range_neg_127_to_127",
        classes="AffineQuantizedObserverBase FixedQParamsObserver Granularity HistogramObserver MinMaxObserver "
        "MovingAverageMinMaxObserver MovingAveragePerChannelMinMaxObserver NoopObserver ObserverBase "
        "PerAxis PerBlock PerChannelMinMaxObserver PerGroup PerRow PerTensor PerToken PlaceholderObserver "
        "RecordingObserver ReuseInputObserver UniformQuantizationObserverBase",
        enums={
            "MappingType": "SYMMETRIC SYMMETRIC_NO_CLIPPING_ERR ASYMMETRIC",
            "TorchAODType": "INT1 INT2 INT3 INT4 INT5 INT6 INT7",
            "ZeroPointDomain": "INT FLOAT NONE",
        },
    ),
    "ao.quantization.qconfig": Absent(
        _REASON,
        functions="get_default_qat_qconfig get_default_qat_qconfig_dict get_default_qconfig "
        "get_default_qconfig_dict qconfig_equals default_activation_only_qconfig default_debug_qconfig "
        "default_dynamic_qconfig default_embedding_qat_qconfig default_per_channel_qconfig default_qat_qconfig "
        "default_qconfig default_weight_only_qconfig float16_dynamic_qconfig float16_static_qconfig "
        "float_qparams_weight_only_qconfig per_channel_dynamic_qconfig",
        classes="QConfig QConfigDynamic",
        others={
            "QConfigAny": Any,
        },
    ),
    "ao.quantization.qconfig_mapping": Absent(
        _REASON,
        functions="QConfigMapping.from_dict get_default_qat_qconfig_mapping get_default_qconfig_mapping",
        classes="QConfigMapping",
    ),
    "ao.quantization.quantize": Absent(
        _REASON,
        functions="add_quant_dequant convert get_default_custom_config_dict prepare prepare_qat "
        "propagate_qconfig_ quantize quantize_dynamic quantize_qat swap_module",
    ),
    "ao.quantization.quantize_fx": Absent(
        _REASON,
        functions="attach_preserved_attrs_to_model convert_fx convert_to_reference_fx fuse_fx "
        "prepare_fx prepare_qat_fx",
    ),
    "ao.quantization.quantize_pt2e": Absent(_REASON),
    "ao.quantization.quantizer": Absent(_REASON),
    "ao.quantization.stubs": Absent(
        _REASON,
        classes="DeQuantStub QuantStub QuantWrapper",
    ),
    "ao.quantization.utils": Absent(
        _REASON,
        functions="activation_dtype activation_is_dynamically_quantized activation_is_int32_quantized "
        "activation_is_int8_quantized activation_is_statically_quantized calculate_qmin_qmax "
        "check_min_max_valid check_node determine_qparams get_combined_dict "
        "get_fqn_to_example_inputs get_qconfig_dtypes get_qparam_dict get_quant_type "
        "get_swapped_custom_module_class getattr_from_fqn "
        "has_no_children_ignoring_parametrizations is_per_channel is_per_tensor "
        "op_is_int8_dynamically_quantized to_underlying_dtype validate_qmin_qmax weight_dtype "
        "weight_is_quantized weight_is_statically_quantized",
        classes="MatchAllNode",
        others={
            "NodePattern": Any,
            "Pattern": Any,
        },
    ),
    "quantization": Absent(_REASON, imports={"ao.quantization": "*"}),
    "nn.intrinsic": Absent(_REASON, imports={"ao.nn.intrinsic": "*"}),
    "nn.intrinsic.qat": Absent(_REASON),
    "nn.intrinsic.quantized": Absent(_REASON),
    "nn.qat": Absent(_REASON),
    "nn.quantizable": Absent(_REASON),
    "nn.quantized": Absent(_REASON, imports={"ao.nn.quantized": "*"}),
    "nn.quantized.dynamic": Absent(_REASON),
    "nn.quantized.functional": Absent(_REASON),
    "nn.quantized.modules": Absent(_REASON, imports={"ao.nn.quantized.modules": "*"}),
}
