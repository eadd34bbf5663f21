"""Packages store models together with the code that they need in one file. Names, rules and files follow `torch.package`.

    with PackageExporter("model.pt") as exporter:
        exporter.intern("project.**")
        exporter.extern("numpy.**")
        exporter.save_pickle("model", "model.pkl", net)

    net = PackageImporter("model.pt").load_pickle("model", "model.pkl")

Reading a package executes the code in it, so read only packages that you trust.
"""

from .analyze.is_from_package import is_from_package as is_from_package
from .file_structure_representation import Directory as Directory
from .glob_group import GlobGroup as GlobGroup
from .importer import Importer as Importer
from .importer import ObjMismatchError as ObjMismatchError
from .importer import ObjNotFoundError as ObjNotFoundError
from .importer import OrderedImporter as OrderedImporter
from .importer import sys_importer as sys_importer
from .package_exporter import EmptyMatchError as EmptyMatchError
from .package_exporter import PackageExporter as PackageExporter
from .package_exporter import PackagingError as PackagingError
from .package_importer import PackageImporter as PackageImporter

__all__ = [
    "Directory", "EmptyMatchError", "GlobGroup", "Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter",
    "PackageExporter", "PackageImporter", "PackagingError", "is_from_package", "sys_importer",
]  # fmt: skip
