from conan import ConanFile


class Pkgconf(ConanFile):
    """Tells what a static gRPC needs."""

    name = "pkgconf"
    python_requires = "dgr-system/1.0"
    python_requires_extend = "dgr-system.SystemPackage"

    apt = ("pkg-config",)
    dnf = ("pkgconf-pkg-config",)
    pacman = ("pkgconf",)
    brew = ("pkgconf",)
