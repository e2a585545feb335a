from conan import ConanFile


class Cli11(ConanFile):
    """The command line parser of the C++ programs."""

    name = "cli11"
    python_requires = "dgr-system/1.0"
    python_requires_extend = "dgr-system.SystemPackage"

    apt = ("libcli11-dev",)
    dnf = ("cli11-devel",)
    pacman = ("cli11",)
    brew = ("cli11",)
