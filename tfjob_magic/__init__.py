"""The ModelArts way of starting a distributed TensorFlow job, from a notebook cell.

Kept to the standard library and free of work at import: `%load_ext tfjob_magic`, the Jupyter
server and the supervisor all pass through here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register `%%tfjob` and `%tfjob` (called by `%load_ext tfjob_magic`)."""
    from tfjob_magic.magic import register  # noqa: PLC0415 - the server needs no magic

    register(shell)


def _jupyter_server_extension_points() -> list[dict[str, object]]:
    """Tell the Jupyter server where its extension is."""
    from tfjob_magic.server.app import TfjobExtension  # noqa: PLC0415 - kernels need no server

    return [{"module": "tfjob_magic", "app": TfjobExtension}]
