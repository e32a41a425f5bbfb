"""How a face reaches the service: behind the Jupyter server's socket, else in this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tfjob_magic.service.inprocess import Service

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_magic.service import Jobs

VARIABLE = "TFJOB_SOCKET"


def connect(environ: Mapping[str, str] = os.environ) -> Jobs:
    """Find the service: the server's where its socket answers for this user, version and home.

    Otherwise it runs in this process. Both do the same, on the same run directories.
    """
    here = Service()
    path = environ.get(VARIABLE)
    if path:
        # HTTP and pydantic: a tenth of a second that the command need not wait for.
        from tfjob_magic.client import server  # noqa: PLC0415

        if server.answers(path, here):
            return server.ServerJobs(path, here)
    return here
