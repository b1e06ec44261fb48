"""Images by name: docker is asked first, then podman; what each of them said is in the error."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.images.edge.engines import save
from nodelib.errors import NotFound

_HAS_IT = '#!/bin/sh\n[ "$1 $2" = "save web:v1" ] && echo archive-by-$(basename "$0")\n'
_HAS_NOT = '#!/bin/sh\necho "Error response: No such image: $2" >&2\nexit 1\n'


@pytest.mark.parametrize(
    ("engines", "who"),
    [({"docker": _HAS_IT, "podman": _HAS_IT}, "docker"), ({"docker": _HAS_NOT, "podman": _HAS_IT}, "podman")],
    ids=["docker", "podman"],
)
async def test_the_first_that_has_it_gives_it(
    engines: dict[str, str], who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(engines, tmp_path, monkeypatch)
    assert await save("web:v1", tmp_path / "image.tar") == who
    assert (tmp_path / "image.tar").read_text() == f"archive-by-{who}\n"


async def test_the_error_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install({"docker": _HAS_NOT}, tmp_path, monkeypatch)
    with pytest.raises(NotFound) as caught:
        await save("web:v2", tmp_path / "image.tar")
    said = "docker: Error response: No such image: web:v2; podman is not installed"
    assert caught.value.message == f"it is neither a file here nor an image of docker or podman ({said})"
    assert "docker pull web:v2" in caught.value.action


def _install(engines: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the programs: which of them a machine has, a test cannot choose."""
    place = folder / "bin"
    place.mkdir()
    for name in ("sh", "basename"):
        (place / name).symlink_to(f"/bin/{name}" if name == "sh" else f"/usr/bin/{name}")
    for name, text in engines.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.delenv("SUDO_USER", raising=False)
