"""The C++ packages of the shard worker."""

from conan import ConanFile


class ShardWorker(ConanFile):
    """Packages of the system, through the recipe index beside this file; see conan/README.md."""

    name = "dgr-shard-worker"
    settings = "os", "arch"

    def requirements(self):
        for name in ("grpc", "protobuf", "cli11", "spdlog"):
            self.requires(f"{name}/system")

    def build_requirements(self):
        self.test_requires("gtest/system")
        self.tool_requires("pkgconf/system")
