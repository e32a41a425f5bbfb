"""`%%tfjob` and `%tfjob`: what `%load_ext tfjob_magic` imports, which is to be instant."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from IPython.core.magic import MAGIC_NO_VAR_EXPAND_ATTR

from tfjob_magic import grammar

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def register(shell: InteractiveShell) -> None:
    """Give the shell `%%tfjob` and `%tfjob`."""

    def tfjob(line: str, cell: str | None = None) -> None:
        from tfjob_magic import notebook  # noqa: PLC0415 - 0.2 s of imports, see below

        notebook.perform(shell, line, cell)

    tfjob.__doc__ = grammar.manual()
    setattr(tfjob, MAGIC_NO_VAR_EXPAND_ATTR, True)
    shell.magics_manager.register_function(tfjob, "line_cell", "tfjob")
    threading.Thread(target=_import_the_rest, name="tfjob-imports", daemon=True).start()


def _import_the_rest() -> None:
    """Import what the first use needs, so that it need not wait for it."""
    with suppress(Exception):  # the first use imports it again, and shows what is wrong
        from tfjob_magic import notebook  # noqa: F401, PLC0415
