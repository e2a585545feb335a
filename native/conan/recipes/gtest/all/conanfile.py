from conan import ConanFile


class GTest(ConanFile):
    """GoogleTest, for the C++ tests."""

    name = "gtest"
    python_requires = "dgr-system/1.0"
    python_requires_extend = "dgr-system.SystemPackage"

    apt = ("libgtest-dev",)
    dnf = ("gtest-devel",)
    pacman = ("gtest",)
    brew = ("googletest",)
