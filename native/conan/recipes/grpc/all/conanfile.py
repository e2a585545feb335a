from conan import ConanFile


class Grpc(ConanFile):
    """gRPC for C++ with its code generator."""

    name = "grpc"
    python_requires = "dgr-system/1.0"
    python_requires_extend = "dgr-system.SystemPackage"

    apt = ("libgrpc++-dev", "protobuf-compiler-grpc")
    dnf = ("grpc-devel", "grpc-plugins")
    pacman = ("grpc",)
    brew = ("grpc",)
