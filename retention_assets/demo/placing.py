"""Finds the sample repositories and their configuration, in the checkout or in the installed package."""

import shutil
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2] / "demo"
_PACKAGED = Path(__file__).resolve().parent / "saved"  # only in an installed package


def demo_configuration() -> Path:
    """Return the path of the demo's retention.yaml: in the checkout, or else in `demo/` of the working directory."""
    folder = _CHECKOUT if (_CHECKOUT / "orchard").is_dir() else Path.cwd() / "demo"
    return folder / "retention.yaml"


def lay_out_demo() -> Path:
    """Return the path of the demo's retention.yaml; if the file is missing, copy the demo out of the package first."""
    file = demo_configuration()
    if not file.is_file() and _PACKAGED.is_dir():
        shutil.copytree(_PACKAGED, file.parent, dirs_exist_ok=True)
    return file
