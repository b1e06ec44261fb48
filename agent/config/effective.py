"""The whole configuration as one text for the log, so that nobody has to merge files and flags by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

_MASKED = ["<masked>"]  # the headers may be credentials; only /configz shows them


def effective_text(config: Mapping[str, Any]) -> str:
    """KubeletConfiguration as YAML (marshalKubeletConfigForLog in cmd/kubelet/app/server.go)."""
    headers = config.get("staticPodURLHeader") or {}
    shown = {**config, "staticPodURLHeader": dict.fromkeys(headers, _MASKED)}
    return str(yaml.dump(shown, Dumper=_Dumper))


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Without anchors for values that are the same object."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
