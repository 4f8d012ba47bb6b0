"""Carries the program drawgate, so that `drawgate serve` works without Go.

The program is among the scripts of the environment, and so on the PATH of an active one. `path` says where;
`python -m drawgate_server serve` runs it wherever it is.
"""

import importlib.metadata
import os
import sysconfig
from pathlib import Path

__all__ = ["__version__", "path"]

__version__ = "0.1.0"

_NAME = "drawgate.exe" if os.name == "nt" else "drawgate"


def path() -> Path:
    """Returns where the program is.

    Raises:
        FileNotFoundError: it was removed, or is not where installers put it.
    """
    places = [
        *_recorded(),
        Path(sysconfig.get_path("scripts"), _NAME),
        Path(__file__).parent.parent / "bin" / _NAME,  # of pip install --target
    ]
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(str(place) for place in places)
    raise FileNotFoundError(f"the program {_NAME} is missing: install drawgate-server again (looked for {looked})")


def _recorded() -> list[Path]:
    """Returns where the installer has put the program, as it wrote down."""
    try:
        files = importlib.metadata.files("drawgate-server") or []
    except importlib.metadata.PackageNotFoundError:  # a package of another kind, which has no such list
        return []
    return [Path(os.path.abspath(file.locate())) for file in files if file.name == _NAME]
