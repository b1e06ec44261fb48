"""A pod's folders are below the root directory, whatever its UID."""

from __future__ import annotations

import pytest

from agent.common.model.pod_settings import PodPaths
from nodelib.errors import Invalid


@pytest.mark.parametrize("uid", ["", ".", "..", "../..", "a/b", "/", "a\0b"])
def test_a_uid_that_leads_elsewhere_has_no_folder(uid: str) -> None:
    with pytest.raises(Invalid, match="is not a UID of a pod"):
        PodPaths("/var/lib/kubelet", uid)


@pytest.mark.parametrize("uid", ["u1", "0ddba11-1", "11111111-1111-1111-1111-111111111111", "f" * 32, "lost+found"])
def test_a_uid_has_its_folder(uid: str) -> None:
    assert PodPaths("/r", uid).pod == f"/r/pods/{uid}"
