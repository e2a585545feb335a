from conan import ConanFile


class Spdlog(ConanFile):
    """The logger of the worker, with the formatter that it takes from outside; both used as headers alone."""

    name = "spdlog"
    python_requires = "dgr-system/1.0"
    python_requires_extend = "dgr-system.SystemPackage"

    apt = ("libspdlog-dev", "libfmt-dev")
    dnf = ("spdlog-devel", "fmt-devel")
    pacman = ("spdlog", "fmt")
    brew = ("spdlog", "fmt")
