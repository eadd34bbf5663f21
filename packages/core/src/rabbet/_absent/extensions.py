"""Code for PyTorch's C++ library, and the placement of processes."""

from . import Absent

_NO_EXTENSIONS = (
    "extensions of PyTorch's C++ library cannot be built; rabbet's are plugins: rabbet new-plugin"
)
_NO_PLACEMENT = "rabbet does not bind processes to NUMA nodes"

TABLE: dict[str, Absent] = {
    "classes": Absent(_NO_EXTENSIONS, functions="load_library", others={"loaded_libraries": set()}),
    "numa": Absent(_NO_PLACEMENT),
    "numa.binding": Absent(
        _NO_PLACEMENT,
        functions="maybe_temporarily_apply_numa_binding_to_current_thread maybe_wrap_command_args_with_numa_binding",
        classes="NumaOptions",
        enums={
            "AffinityMode": {
                "NODE": "node", "SOCKET": "socket", "EXCLUSIVE": "exclusive", "CORE_COMPLEX": "core-complex",
            },
        },
    ),
}  # fmt: skip
