"""Where the sample repositories and their configuration are: in the checkout, or in the package that was installed."""

import shutil
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2] / "demo"
_PACKAGED = Path(__file__).resolve().parent / "saved"  # only in an installed package


def demo_configuration() -> Path:
    """Return the demo's retention.yaml: the checkout's, else the one in `demo/` of the working directory."""
    folder = _CHECKOUT if (_CHECKOUT / "orchard").is_dir() else Path.cwd() / "demo"
    return folder / "retention.yaml"


def lay_out_demo() -> Path:
    """Return the demo's retention.yaml, after copying it with its samples out of the package where it is not there."""
    file = demo_configuration()
    if not file.is_file() and _PACKAGED.is_dir():
        shutil.copytree(_PACKAGED, file.parent, dirs_exist_ok=True)
    return file
