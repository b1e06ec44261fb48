"""Where a Python process that is started without this one's environment finds what this one has."""

from __future__ import annotations

import os


def python_path(project: str) -> str:
    """PYTHONPATH: `project`, then what is in this process's; the Debian package has its Python packages there."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys((project, *(path for path in known if os.path.isabs(path)))))
