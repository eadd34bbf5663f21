"""Distributed training: processes, groups, meshes, sharded models and checkpoints."""

import datetime
import enum
import logging
from collections.abc import Callable
from typing import Any

from . import Absent, refusing_function, unchanged

_REASON = "rabbet has no distributed package yet: it runs in one process"

# Constants that programs use as default arguments.
ReduceOp = enum.Enum("ReduceOp", "SUM AVG PRODUCT MIN MAX BAND BOR BXOR PREMUL_SUM", start=0)
ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]


class _Group:
    """The group of all processes. There is none."""

    WORLD = None


def _requires_rpc(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of functions that call other processes: they raise when they are called."""
    return refusing_function(function.__module__, function.__name__, _REASON)


TABLE: dict[str, Absent] = {
    "distributed": Absent(
        _REASON,
        functions="_rank_not_in_group breakpoint set_debug_level set_debug_level_from_env",
        answers={"is_available": False},
        classes="FileStore GradBucket HashStore Logger Reducer TCPStore",
        enums={"BuiltinCommHookType": "ALLREDUCE FP16_COMPRESS"},
        errors={
            "DistBackendError": RuntimeError,
            "DistError": RuntimeError,
            "DistNetworkError": RuntimeError,
            "DistStoreError": RuntimeError,
            "QueueEmptyError": RuntimeError,
        },
        imports={
            "distributed.device_mesh": "DeviceMesh init_device_mesh",
            "distributed.distributed_c10d": "*",
            "distributed.rendezvous": "register_rendezvous_handler rendezvous",
        },
        others={"log": logging.getLogger("rabbet.distributed"), "timedelta": datetime.timedelta},
    ),
    "distributed._composable": Absent(
        _REASON,
        functions="checkpoint contract replicate",
    ),
    "distributed._composable.fsdp": Absent(
        _REASON,
        imports={
            "distributed.fsdp": "CPUOffloadPolicy FSDPModule MixedPrecisionPolicy OffloadPolicy fully_shard "
            "register_fsdp_forward_method",
        },
    ),
    "distributed._composable.fsdp.fully_shard": Absent(_REASON),
    "distributed._functional_collectives": Absent(
        _REASON,
        functions="all_gather_tensor all_to_all_single all_to_all_single_autograd permute_tensor "
        "wait_tensor",
        classes="AsyncCollectiveTensor",
    ),
    "distributed._shard": Absent(_REASON),
    "distributed._shard.api": Absent(_REASON),
    "distributed._shard.sharded_tensor": Absent(
        _REASON,
        functions="Shard.from_tensor_and_offsets TensorProperties.create_from_tensor "
        "init_from_local_shards",
        classes="Shard ShardedTensor ShardedTensorMetadata TensorProperties",
    ),
    "distributed._tensor": Absent(
        _REASON,
        imports={
            "distributed.device_mesh": "DeviceMesh init_device_mesh",
            "distributed.tensor": "DTensor distribute_module distribute_tensor",
            "distributed.tensor.placement_types": "Partial Placement Replicate Shard",
        },
    ),
    "distributed._tensor.experimental": Absent(
        _REASON, imports={"distributed.tensor.experimental": "*"}
    ),
    "distributed._tensor.api": Absent(
        _REASON,
        imports={
            "distributed.tensor": "DTensor distribute_module distribute_tensor",
        },
    ),
    "distributed._tensor.placement_types": Absent(
        _REASON,
        functions="DTensorSpec.compute_default_shard_order DTensorSpec.format_shard_order_str "
        "DTensorSpec.from_dim_map DTensorSpec.is_default_device_order",
        classes="DTensorSpec",
        imports={
            "distributed.tensor.placement_types": "Partial Placement Replicate Shard",
        },
    ),
    "distributed.algorithms": Absent(_REASON),
    "distributed.algorithms._checkpoint": Absent(_REASON),
    "distributed.algorithms._checkpoint.checkpoint_wrapper": Absent(
        _REASON,
        functions="apply_activation_checkpointing checkpoint_wrapper offload_wrapper",
        classes="CheckpointWrapper",
        enums={
            "CheckpointImpl": "REENTRANT NO_REENTRANT",
        },
    ),
    "distributed.algorithms.ddp_comm_hooks": Absent(
        _REASON,
        functions="register_ddp_comm_hook",
        enums={
            "DDPCommHookType": "ALLREDUCE FP16_COMPRESS BF16_COMPRESS QUANTIZE_PER_TENSOR QUANTIZE_PER_CHANNEL "
            "POWER_SGD POWER_SGD_RANK2 BATCHED_POWER_SGD BATCHED_POWER_SGD_RANK2 NOOP",
        },
    ),
    "distributed.algorithms.ddp_comm_hooks.default_hooks": Absent(
        _REASON,
        functions="allreduce_hook bf16_compress_hook bf16_compress_wrapper fp16_compress_hook "
        "fp16_compress_wrapper",
    ),
    "distributed.algorithms.ddp_comm_hooks.optimizer_overlap_hooks": Absent(_REASON),
    "distributed.algorithms.ddp_comm_hooks.post_localSGD_hook": Absent(
        _REASON,
        functions="post_localSGD_hook",
        classes="PostLocalSGDState",
    ),
    "distributed.algorithms.ddp_comm_hooks.powerSGD_hook": Absent(
        _REASON,
        functions="batched_powerSGD_hook powerSGD_hook",
        classes="PowerSGDState",
    ),
    "distributed.algorithms.ddp_comm_hooks.quantization_hooks": Absent(
        _REASON,
        functions="quantization_perchannel_hook quantization_pertensor_hook",
    ),
    "distributed.algorithms.join": Absent(
        _REASON,
        functions="Join.notify_join_context",
        classes="Join JoinHook Joinable",
    ),
    "distributed.algorithms.model_averaging": Absent(_REASON),
    "distributed.algorithms.model_averaging.averagers": Absent(
        _REASON,
        classes="ModelAverager PeriodicModelAverager",
    ),
    "distributed.algorithms.model_averaging.hierarchical_model_averager": Absent(
        _REASON,
        classes="HierarchicalModelAverager",
    ),
    "distributed.algorithms.model_averaging.utils": Absent(
        _REASON,
        functions="average_parameters average_parameters_or_parameter_groups get_params_to_average",
    ),
    "distributed.autograd": Absent(
        _REASON,
        answers={"is_available": False},
        classes="context",
    ),
    "distributed.c10d_logger": Absent(_REASON),
    "distributed.checkpoint": Absent(
        _REASON,
        imports={
            "distributed.checkpoint.api": "CheckpointException",
            "distributed.checkpoint.default_planner": "DefaultLoadPlanner DefaultSavePlanner",
            "distributed.checkpoint.filesystem": "FileSystemReader FileSystemWriter",
            "distributed.checkpoint.hf_storage": "HuggingFaceStorageReader HuggingFaceStorageWriter "
            "QuantizedHuggingFaceStorageReader",
            "distributed.checkpoint.metadata": "BytesStorageMetadata ChunkStorageMetadata Metadata TensorStorageMetadata",
            "distributed.checkpoint.optimizer": "load_sharded_optimizer_state_dict",
            "distributed.checkpoint.planner": "LoadPlan LoadPlanner ReadItem SavePlan SavePlanner WriteItem",
            "distributed.checkpoint.state_dict_loader": "load load_state_dict",
            "distributed.checkpoint.state_dict_saver": "async_save save save_state_dict",
            "distributed.checkpoint.storage": "StorageReader StorageWriter",
        },
    ),
    "distributed.checkpoint._consolidate_hf_safetensors": Absent(
        _REASON,
        functions="consolidate_safetensors_files",
    ),
    "distributed.checkpoint.api": Absent(
        _REASON,
        errors={
            "CheckpointException": RuntimeError,
        },
    ),
    "distributed.checkpoint.default_planner": Absent(
        _REASON,
        functions="create_default_global_load_plan create_default_global_save_plan "
        "create_default_local_load_plan create_default_local_save_plan",
        classes="DefaultLoadPlanner DefaultSavePlanner",
    ),
    "distributed.checkpoint.filesystem": Absent(
        _REASON,
        functions="FileSystem.validate_checkpoint_id FileSystemBase.validate_checkpoint_id "
        "FileSystemReader.validate_checkpoint_id",
        classes="FileSystem FileSystemBase FileSystemReader FileSystemWriter",
        enums={
            "SerializationFormat": {"TORCH_SAVE": "torch_save", "SAFETENSORS": "safetensors"},
        },
    ),
    "distributed.checkpoint.format_utils": Absent(
        _REASON,
        functions="BroadcastingTorchSaveReader.validate_checkpoint_id dcp_to_torch_save "
        "torch_save_to_dcp",
        classes="BroadcastingTorchSaveReader DynamicMetaLoadPlanner _EmptyStateDictLoadPlanner",
        imports={
            "distributed.checkpoint.state_dict_loader": "_load_state_dict",
        },
    ),
    "distributed.checkpoint.hf_storage": Absent(
        _REASON,
        classes="HuggingFaceStorageReader HuggingFaceStorageWriter QuantizedHuggingFaceStorageReader",
    ),
    "distributed.checkpoint.metadata": Absent(
        _REASON,
        functions="TensorProperties.create_from_tensor",
        classes="BytesStorageMetadata ChunkStorageMetadata Metadata MetadataIndex StorageMeta TensorProperties "
        "TensorStorageMetadata",
    ),
    "distributed.checkpoint.optimizer": Absent(
        _REASON,
        functions="load_sharded_optimizer_state_dict",
    ),
    "distributed.checkpoint.planner": Absent(
        _REASON,
        classes="BytesIOWriteData LoadPlan LoadPlanner ReadItem SavePlan SavePlanner TensorWriteData WriteItem",
        enums={
            "LoadItemType": "TENSOR BYTE_IO",
            "WriteItemType": "TENSOR SHARD BYTE_IO",
        },
    ),
    "distributed.checkpoint.state_dict": Absent(
        _REASON,
        functions="get_model_state_dict get_optimizer_state_dict get_state_dict set_model_state_dict "
        "set_optimizer_state_dict set_state_dict",
        classes="StateDictOptions",
    ),
    "distributed.checkpoint.state_dict_loader": Absent(
        _REASON,
        functions="_load_state_dict load load_state_dict",
    ),
    "distributed.checkpoint.state_dict_saver": Absent(
        _REASON,
        functions="async_save save save_state_dict",
        classes="AsyncSaveResponse",
        enums={
            "AsyncCheckpointerType": {"THREAD": "thread", "PROCESS": "process"},
        },
    ),
    "distributed.checkpoint.stateful": Absent(
        _REASON,
        classes="Stateful",
        others={
            "StatefulT": Any,
        },
    ),
    "distributed.checkpoint.storage": Absent(
        _REASON,
        functions="StorageReader.validate_checkpoint_id StorageWriter.validate_checkpoint_id",
        classes="StorageReader StorageWriter WriteResult",
    ),
    "distributed.constants": Absent(
        _REASON,
        others={
            "default_pg_nccl_timeout": None,
            "default_pg_timeout": datetime.timedelta(minutes=30),
        },
    ),
    "distributed.device_mesh": Absent(
        _REASON,
        functions="DeviceMesh.from_group init_device_mesh",
        classes="DeviceMesh",
    ),
    "distributed.distributed_c10d": Absent(
        _REASON,
        functions="Backend.register_backend ProcessGroup.unbox ProcessGroupGloo.create_default_device "
        "ProcessGroupGloo.create_device Work.unbox _get_default_group all_gather "
        "all_gather_coalesced all_gather_into_tensor all_gather_object all_gather_single "
        "all_reduce all_reduce_coalesced all_to_all all_to_all_single barrier "
        "batch_isend_irecv broadcast broadcast_object_list destroy_process_group gather "
        "gather_object get_backend get_backend_config get_debug_level "
        "get_default_backend_for_device get_global_rank get_group_rank get_node_local_rank "
        "get_pg_count get_process_group_ranks get_rank get_world_size init_process_group "
        "irecv isend monitored_barrier new_group new_subgroups new_subgroups_by_enumeration "
        "record_comm recv recv_object_list reduce reduce_scatter reduce_scatter_single "
        "reduce_scatter_tensor scatter scatter_object_list send send_object_list shrink_group "
        "split_group supports_complex",
        answers={
            "is_backend_available": False,
            "is_gloo_available": False,
            "is_initialized": False,
            "is_mpi_available": False,
            "is_nccl_available": False,
            "is_torchelastic_launched": False,
            "is_ucc_available": False,
            "is_xccl_available": False,
        },
        classes="AllToAllOptions AllreduceCoalescedOptions AllreduceOptions Backend BackendConfig BarrierOptions "
        "BroadcastOptions DebugLevel GatherOptions GroupMember P2POp PrefixStore ProcessGroup "
        "ProcessGroupGloo ReduceOptions ReduceScatterOptions ScatterOptions Store Work",
        imports={
            "distributed.constants": "default_pg_timeout",
        },
        others={
            "Backend.GLOO": "gloo",
            "Backend.MPI": "mpi",
            "Backend.NCCL": "nccl",
            "Backend.UCC": "ucc",
            "Backend.UNDEFINED": "undefined",
            "Backend.backend_list": ["undefined", "gloo", "nccl", "xccl", "ucc", "mpi"],
            "Backend.default_device_backend_map": {"cpu": "gloo", "cuda": "nccl"},
            "GroupMember.NON_GROUP_MEMBER": -100,
            "GroupMember.WORLD": None,
            "GroupName": Any,
            "_pg_map": {},
            "ReduceOp": ReduceOp,
            "group": _Group,
        },
    ),
    "distributed.elastic": Absent(_REASON),
    "distributed.elastic.agent": Absent(_REASON),
    "distributed.elastic.agent.server": Absent(_REASON),
    "distributed.elastic.events": Absent(
        _REASON,
        functions="construct_and_record_rdzv_event record record_rdzv_event",
    ),
    "distributed.elastic.metrics": Absent(
        _REASON,
        functions="initialize_metrics",
    ),
    "distributed.elastic.multiprocessing": Absent(
        _REASON,
        functions="start_processes to_map",
        classes="DefaultLogsSpecs LogsDest LogsSpecs MultiprocessContext PContext RunProcsResult "
        "SubprocessContext",
        errors={
            "SignalException": Exception,
        },
        enums={
            "Std": {"NONE": 0, "OUT": 1, "ERR": 2, "ALL": 3},
        },
        imports={
            "distributed.elastic.multiprocessing.errors": "ProcessFailure",
        },
    ),
    "distributed.elastic.multiprocessing.errors": Absent(
        _REASON,
        functions="get_error_handler",
        classes="ErrorHandler ProcessFailure",
        others={
            "record": unchanged
        },  # it would write errors for the parent process of a launcher, which does not exist
        errors={
            "ChildFailedError": Exception,
        },
    ),
    "distributed.elastic.rendezvous": Absent(
        _REASON,
        functions="RendezvousStoreInfo.build",
        classes="RendezvousHandler RendezvousHandlerRegistry RendezvousInfo RendezvousParameters "
        "RendezvousStoreInfo",
        errors={
            "RendezvousClosedError": RuntimeError,
            "RendezvousConnectionError": RuntimeError,
            "RendezvousError": Exception,
            "RendezvousGracefulExitError": RuntimeError,
            "RendezvousStateError": RuntimeError,
            "RendezvousTimeoutError": RuntimeError,
        },
    ),
    "distributed.elastic.timer": Absent(_REASON),
    "distributed.elastic.utils": Absent(_REASON),
    "distributed.fsdp": Absent(
        _REASON,
        functions="fully_shard register_fsdp_forward_method share_comm_ctx",
        classes="CPUOffloadPolicy DataParallelMeshDims FSDPModule MixedPrecisionPolicy OffloadPolicy "
        "UnshardHandle",
        imports={
            "distributed.fsdp.api": "BackwardPrefetch CPUOffload FullOptimStateDictConfig FullStateDictConfig "
            "LocalOptimStateDictConfig LocalStateDictConfig MixedPrecision OptimStateDictConfig "
            "ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy StateDictConfig "
            "StateDictSettings StateDictType",
            "distributed.fsdp.fully_sharded_data_parallel": "FullyShardedDataParallel OptimStateKeyType",
        },
    ),
    "distributed.fsdp._common_utils": Absent(_REASON),
    "distributed.fsdp._fully_shard": Absent(
        _REASON,
        imports={
            "distributed.fsdp": "FSDPModule fully_shard",
        },
    ),
    "distributed.fsdp._runtime_utils": Absent(_REASON),
    "distributed.fsdp.api": Absent(
        _REASON,
        classes="CPUOffload FullOptimStateDictConfig FullStateDictConfig LocalOptimStateDictConfig "
        "LocalStateDictConfig MixedPrecision OptimStateDictConfig ShardedOptimStateDictConfig "
        "ShardedStateDictConfig StateDictConfig StateDictSettings",
        enums={
            "BackwardPrefetch": "BACKWARD_PRE BACKWARD_POST",
            "ShardingStrategy": "FULL_SHARD SHARD_GRAD_OP NO_SHARD HYBRID_SHARD _HYBRID_SHARD_ZERO2",
            "StateDictType": "FULL_STATE_DICT LOCAL_STATE_DICT SHARDED_STATE_DICT",
        },
    ),
    "distributed.fsdp.fully_sharded_data_parallel": Absent(
        _REASON,
        functions="FullyShardedDataParallel.flatten_sharded_optim_state_dict "
        "FullyShardedDataParallel.fsdp_modules FullyShardedDataParallel.full_optim_state_dict "
        "FullyShardedDataParallel.get_state_dict_type "
        "FullyShardedDataParallel.optim_state_dict "
        "FullyShardedDataParallel.optim_state_dict_to_load "
        "FullyShardedDataParallel.rekey_optim_state_dict "
        "FullyShardedDataParallel.scatter_full_optim_state_dict "
        "FullyShardedDataParallel.set_state_dict_type "
        "FullyShardedDataParallel.shard_full_optim_state_dict "
        "FullyShardedDataParallel.sharded_optim_state_dict "
        "FullyShardedDataParallel.state_dict_type FullyShardedDataParallel.summon_full_params",
        classes="FullyShardedDataParallel",
        enums={
            "OptimStateKeyType": "PARAM_NAME PARAM_ID",
        },
        imports={
            "distributed.fsdp.api": "CPUOffload FullOptimStateDictConfig FullStateDictConfig MixedPrecision "
            "ShardedOptimStateDictConfig ShardedStateDictConfig ShardingStrategy StateDictType",
        },
    ),
    "distributed.fsdp.sharded_grad_scaler": Absent(
        _REASON,
        classes="ShardedGradScaler",
    ),
    "distributed.fsdp.wrap": Absent(
        _REASON,
        functions="_or_policy always_wrap_policy enable_wrap lambda_auto_wrap_policy "
        "size_based_auto_wrap_policy transformer_auto_wrap_policy wrap",
        classes="CustomPolicy ModuleWrapPolicy",
    ),
    "distributed.launch": Absent(
        _REASON,
        functions="launch main parse_args",
    ),
    "distributed.launcher": Absent(_REASON),
    "distributed.launcher.api": Absent(
        _REASON,
        functions="launch_agent",
        classes="LaunchConfig elastic_launch",
    ),
    "distributed.nn": Absent(
        _REASON,
        classes="RemoteModule",
        imports={
            "distributed.nn.functional": "all_gather all_reduce",
        },
    ),
    "distributed.nn.functional": Absent(
        _REASON,
        functions="all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce "
        "reduce_scatter scatter",
    ),
    "distributed.optim": Absent(
        _REASON,
        functions="as_functional_optim",
        classes="DistributedOptimizer PostLocalSGDOptimizer",
        imports={
            "distributed.optim.zero_redundancy_optimizer": "ZeroRedundancyOptimizer",
        },
    ),
    "distributed.optim.zero_redundancy_optimizer": Absent(
        _REASON,
        classes="ZeroRedundancyOptimizer",
    ),
    "distributed.pipelining": Absent(
        _REASON,
        functions="Pipe.from_tracing pipe_split pipeline",
        classes="Pipe",
        enums={
            "SplitPoint": "BEGINNING END",
        },
        imports={
            "distributed.pipelining.schedules": "Schedule1F1B ScheduleDualPipeV ScheduleGPipe ScheduleInterleaved1F1B "
            "ScheduleInterleavedZeroBubble ScheduleLoopedBFS ScheduleZBVZeroBubble",
            "distributed.pipelining.stage": "PipelineStage build_stage",
        },
    ),
    "distributed.pipelining.schedules": Absent(
        _REASON,
        functions="get_schedule_class",
        classes="PipelineScheduleMulti PipelineScheduleSingle Schedule1F1B ScheduleDualPipeV ScheduleGPipe "
        "ScheduleInterleaved1F1B ScheduleInterleavedZeroBubble ScheduleLoopedBFS ScheduleZBVZeroBubble",
    ),
    "distributed.pipelining.stage": Absent(
        _REASON,
        functions="build_stage",
        classes="PipelineStage",
    ),
    "distributed.rendezvous": Absent(
        _REASON,
        functions="register_rendezvous_handler rendezvous",
    ),
    "distributed.rpc": Absent(
        _REASON,
        functions="init_rpc new_method",
        answers={"is_available": False},
        imports={
            "distributed.rpc.api": "AllGatherStates RRef get_worker_info method_factory remote rpc_async rpc_sync "
            "shutdown",
            "distributed.rpc.backend_registry": "BackendType",
            "distributed.rpc.options": "TensorPipeRpcBackendOptions",
        },
    ),
    "distributed.rpc.api": Absent(
        _REASON,
        functions="_all_gather get_worker_info method_factory remote rpc_async rpc_sync shutdown",
        classes="AllGatherStates RRef",
        others={"_require_initialized": _requires_rpc},
        imports={
            "distributed.rpc": "new_method",
        },
    ),
    "distributed.rpc.backend_registry": Absent(
        _REASON,
        functions="backend_registered construct_rpc_backend_options init_backend register_backend",
        classes="BackendValue",
        enums={
            "BackendType": "TENSORPIPE",
        },
    ),
    "distributed.rpc.options": Absent(
        _REASON,
        classes="TensorPipeRpcBackendOptions",
    ),
    "distributed.run": Absent(
        _REASON,
        functions="config_from_args determine_local_world_size get_args_parser get_rdzv_endpoint "
        "get_use_env main parse_args parse_min_max_nnodes run run_script_path",
    ),
    "distributed.tensor": Absent(
        _REASON,
        functions="DTensor.from_local distribute_module distribute_tensor empty full ones rand randn "
        "zeros",
        classes="DTensor",
        imports={
            "distributed.tensor.placement_types": "Partial Placement Replicate Shard",
        },
    ),
    "distributed.tensor._utils": Absent(
        _REASON,
        functions="compute_local_shape_and_global_offset",
    ),
    "distributed.tensor.device_mesh": Absent(
        _REASON,
        imports={
            "distributed.device_mesh": "DeviceMesh init_device_mesh",
        },
    ),
    "distributed.tensor.experimental": Absent(
        _REASON,
        functions="context_parallel implicit_replication local_map register_sharding",
    ),
    "distributed.tensor.experimental._attention": Absent(
        _REASON,
        functions="set_rotate_method",
    ),
    "distributed.tensor.parallel": Absent(
        _REASON,
        imports={
            "distributed.tensor.parallel.api": "parallelize_module",
            "distributed.tensor.parallel.loss": "loss_parallel",
            "distributed.tensor.parallel.style": "ColwiseParallel ParallelStyle PrepareModuleInput PrepareModuleInputOutput "
            "PrepareModuleOutput RowwiseParallel SequenceParallel",
        },
    ),
    "distributed.tensor.parallel.api": Absent(
        _REASON,
        functions="parallelize_module",
    ),
    "distributed.tensor.parallel.ddp": Absent(_REASON),
    "distributed.tensor.parallel.loss": Absent(
        _REASON,
        functions="loss_parallel",
    ),
    "distributed.tensor.parallel.style": Absent(
        _REASON,
        classes="ColwiseParallel ParallelStyle PrepareModuleInput PrepareModuleInputOutput PrepareModuleOutput "
        "RowwiseParallel SequenceParallel",
    ),
    "distributed.tensor.placement_types": Absent(
        _REASON,
        functions="Shard._local_shard_size_and_offset Shard.local_shard_size_and_offset",
        classes="Partial Placement Replicate Shard _MaskPartial _StridedShard",
    ),
    "distributed.utils": Absent(
        _REASON,
        functions="_sync_module_states",
    ),
}
