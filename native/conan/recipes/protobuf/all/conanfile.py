from conan import ConanFile


class Protobuf(ConanFile):
    """Protocol buffers for C++ with their compiler."""

    name = "protobuf"
    python_requires = "dgr-system/1.0"
    python_requires_extend = "dgr-system.SystemPackage"

    apt = ("libprotobuf-dev", "protobuf-compiler")
    dnf = ("protobuf-devel", "protobuf-compiler")
    pacman = ("protobuf",)
    brew = ("protobuf",)
