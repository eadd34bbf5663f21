"""Data pipes."""

from . import Absent, marks_nothing

_REASON = "rabbet has no data pipes; utils.data has datasets and loaders"

TABLE: dict[str, Absent] = {
    "utils.data.datapipes": Absent(_REASON),
    "utils.data.datapipes._decorator": Absent(
        _REASON,
        classes="argument_validation guaranteed_datapipes_determinism non_deterministic "
        "runtime_validation runtime_validation_disabled",
        others={"functional_datapipe": marks_nothing},
    ),
    "utils.data.datapipes.dataframe": Absent(_REASON),
    "utils.data.datapipes.datapipe": Absent(
        _REASON,
        functions="IterDataPipe.register_datapipe_as_function IterDataPipe.register_function "
        "IterDataPipe.set_getstate_hook IterDataPipe.set_reduce_ex_hook "
        "MapDataPipe.register_datapipe_as_function MapDataPipe.register_function "
        "MapDataPipe.set_getstate_hook MapDataPipe.set_reduce_ex_hook",
        classes="DFIterDataPipe DataChunk IterDataPipe MapDataPipe",
    ),
    "utils.data.datapipes.iter": Absent(
        _REASON,
        classes="Batcher Collator Concater Demultiplexer FileLister FileOpener Filter Forker Grouper "
        "IterableWrapper Mapper Multiplexer RoutedDecoder ShardingFilter StreamReader UnBatcher Zipper",
        imports={"utils.data.datapipes.iter.combinatorics": "Sampler Shuffler"},
    ),
    "utils.data.datapipes.iter.combinatorics": Absent(
        _REASON, classes="Sampler Shuffler SamplerIterDataPipe ShufflerIterDataPipe"
    ),
    "utils.data.datapipes.map": Absent(
        _REASON, classes="Batcher Concater Mapper SequenceWrapper Shuffler Zipper"
    ),
    "utils.data.graph": Absent(_REASON, functions="traverse traverse_dps"),
    "utils.data.graph_settings": Absent(
        _REASON,
        functions="apply_random_seed apply_sharding apply_shuffle_seed apply_shuffle_settings get_all_graph_pipes",
    ),
}
