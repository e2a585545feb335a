from conan import ConanFile


class Spdlog(ConanFile):
    """The log of the C++ programs."""

    name = "spdlog"
    python_requires = "dgr-system/1.0"
    python_requires_extend = "dgr-system.SystemPackage"

    apt = ("libspdlog-dev",)
    dnf = ("spdlog-devel",)
    pacman = ("spdlog",)
    brew = ("spdlog",)
