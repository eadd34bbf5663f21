"""Summaries of hyperparameters and the metrics that they led to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.struct_pb2 import ListValue
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

from ..._C import Tensor

__all__ = ["hparams"]

_TYPES = (
    (bool, api_pb2.DATA_TYPE_BOOL, "bool_value"),
    ((int, float), api_pb2.DATA_TYPE_FLOAT64, "number_value"),
    (str, api_pb2.DATA_TYPE_STRING, "string_value"),
)


def _typed(name: str, value: Any) -> tuple[Any, int, str]:
    """A value with its type and its field of the protocol."""
    if isinstance(value, Tensor):
        value = value.item()
    for types, kind, field in _TYPES:
        if isinstance(value, types):
            return value, kind, field
    raise ValueError(
        f"add_hparams: expected an int, float, str, bool or tensor for {name!r}, got {type(value).__name__}"
    )


def _value(tag: str, **content: Any) -> Summary:
    data = plugin_data_pb2.HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **content)
    found = metadata.create_summary_metadata(data)
    return Summary(value=[Summary.Value(tag=tag, metadata=found)])


def hparams(
    hparam_dict: Mapping[str, Any],
    metric_dict: Mapping[str, Any],
    domains: Mapping[str, list[Any]] | None = None,
) -> list[Summary]:
    """The summaries of an experiment, of the start of its one session, and of its end."""
    for name, given in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
        if not isinstance(given, Mapping):
            raise TypeError(f"add_hparams: {name} must be a dict, got {type(given).__name__}")
    if unknown := set(domains or ()) - set(hparam_dict):
        raise ValueError(f"add_hparams: hparam_domain_discrete has unknown names {sorted(unknown)}")
    infos, start = [], plugin_data_pb2.SessionStartInfo()
    for name, given in hparam_dict.items():
        if given is None:
            continue
        value, kind, field = _typed(name, given)
        setattr(start.hparams[name], field, value)
        info = api_pb2.HParamInfo(name=name, type=kind)
        if domains and name in domains:
            choices = ListValue()
            choices.extend([_typed(name, choice)[0] for choice in domains[name]])
            info.domain_discrete.CopyFrom(choices)
        infos.append(info)
    metrics = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in metric_dict]
    end = plugin_data_pb2.SessionEndInfo(status=api_pb2.STATUS_SUCCESS)
    return [
        _value(
            metadata.EXPERIMENT_TAG,
            experiment=api_pb2.Experiment(hparam_infos=infos, metric_infos=metrics),
        ),
        _value(metadata.SESSION_START_INFO_TAG, session_start_info=start),
        _value(metadata.SESSION_END_INFO_TAG, session_end_info=end),
    ]
