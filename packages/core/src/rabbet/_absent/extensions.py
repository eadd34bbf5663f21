"""Code for PyTorch's C++ library, packages of code with models, and the placement of processes."""

from . import Absent

_NO_EXTENSIONS = (
    "extensions of PyTorch's C++ library cannot be built; rabbet's are plugins: rabbet new-plugin"
)
_NO_PACKAGES = "rabbet has no packages of code and models; save() and load() take whole modules"
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
    "package": Absent(
        _NO_PACKAGES,
        functions="is_from_package sys_importer",
        classes="Directory EmptyMatchError GlobGroup Importer OrderedImporter PackageExporter PackageImporter",
        errors={"ObjMismatchError": Exception, "ObjNotFoundError": Exception, "PackagingError": Exception},
    ),
    "utils.cpp_extension": Absent(
        _NO_EXTENSIONS,
        functions="load load_inline include_paths library_paths CppExtension CUDAExtension SyclExtension",
        classes="BuildExtension",
        answers={"is_ninja_available": False},
        others={"CUDA_HOME": None, "ROCM_HOME": None},
    ),
}  # fmt: skip
