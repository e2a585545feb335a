"""What recipes share that stand for packages of the system's own package manager."""

from conan import ConanFile
from conan.tools.system.package_manager import Apt, Brew, Dnf, PacMan


class SystemPackage:
    """Checks for packages of the system, or installs them, as `tools.system.package_manager:mode` says.

    The system's own CMake and pkg-config files describe them; Conan generates nothing for them.
    """

    version = "system"
    package_type = "unknown"
    settings = "os", "arch"

    apt: tuple[str, ...] = ()
    dnf: tuple[str, ...] = ()
    pacman: tuple[str, ...] = ()
    brew: tuple[str, ...] = ()

    def package_id(self):
        self.info.clear()

    def system_requirements(self):
        Apt(self).install(list(self.apt), check=True)
        Dnf(self).install(list(self.dnf), check=True)
        PacMan(self).install(list(self.pacman), check=True)
        Brew(self).install(list(self.brew), check=True)

    def package_info(self):
        self.cpp_info.bindirs = []
        self.cpp_info.includedirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.set_property("cmake_find_mode", "none")


class DgrSystem(ConanFile):
    name = "dgr-system"
    version = "1.0"
    package_type = "python-require"
