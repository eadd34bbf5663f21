"""Counters and events of running programs."""

from . import Absent

TABLE: dict[str, Absent] = {
    "monitor": Absent(
        "rabbet has no monitor yet",
        functions="log_event register_event_handler unregister_event_handler",
        classes="Event EventHandlerHandle Stat TensorboardEventHandler",
        enums={"Aggregation": "VALUE MEAN COUNT SUM MAX MIN"},
    ),
}
