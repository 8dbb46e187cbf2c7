"""Optional packages: which extras there are, and how to install one. Standard library only."""

import re
from importlib import metadata

from pessimism.errors import UserError

FOR_DEVELOPMENT = ("dev", "docs")


def extras() -> dict[str, list[str]]:
    """Return the requirements of each extra that users may want, as the installed metadata lists them."""
    found: dict[str, list[str]] = {}
    for line in metadata.requires("pessimism") or []:
        requirement, _, marker = line.partition(";")
        if name := re.search(r"extra == ['\"]([\w-]+)['\"]", marker):
            found.setdefault(name[1], []).append(requirement.strip())
    return {name: packages for name, packages in found.items() if name not in FOR_DEVELOPMENT}


def package_name(requirement: str) -> str:
    """Return the package of a requirement: `ray` for `ray[default]>=2.60`."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def installed(requirement: str) -> str | None:
    """Return the installed version of the package that a requirement names, if there is one."""
    try:
        return metadata.version(package_name(requirement))
    except metadata.PackageNotFoundError:
        return None


def install_command(extra: str) -> str:
    """Return what installs an extra. It names the packages themselves: this works from a checkout and a wheel."""
    return f"pip install {' '.join(repr(requirement) for requirement in extras()[extra])}"


def missing(what: str, extra: str) -> UserError:
    """Return the error for an optional package that is not installed."""
    return UserError(f"{what} is not installed: {install_command(extra)}")
