"""Why the node rejects a pod."""

from __future__ import annotations

from dataclasses import dataclass

UNEXPECTED = "UnexpectedAdmissionError"
ATTACH_LIMIT = "VolumeAttachmentLimitExceeded"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Upstream's reason and message of a rejected pod; `detail`: the label of the metric that counts its resize."""

    reason: str
    message: str
    detail: str = ""
