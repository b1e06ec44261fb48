"""The specification's error: its codes and its JSON (section "Error"). Pure."""

from __future__ import annotations

import json

from nodelib.errors import NodewrightError
from nodelib.json_values import Json

# Error codes of the specification, section "Error"; 100 and above are our own.
INCOMPATIBLE_VERSION = 1
UNSUPPORTED_FIELD = 2
UNKNOWN_CONTAINER = 3
INVALID_ENVIRONMENT = 4
IO_FAILURE = 5
DECODING_FAILURE = 6
INVALID_CONFIG = 7
INVALID_NETNS = 8
TRY_AGAIN_LATER = 11
NOT_AVAILABLE = 50
KERNEL_REFUSED = 100
RANGE_EXHAUSTED = 101
CHECK_FAILED = 102
INTERNAL = 999


class CNIError(NodewrightError):
    """An error for the runtime: `code` is the specification's, `details` say what to do about it."""

    def __init__(self, code: int, message: str, *, details: str = "", step: str = "", obj: str = "") -> None:
        super().__init__(message, action=details, step=step, obj=obj)
        self.code = code

    def as_json(self, version: str) -> Json:
        head = ": ".join(part for part in (self.obj, self.step, self.message) if part)
        body: Json = {"cniVersion": version, "code": self.code, "msg": f"nodewright: {head}"}
        if self.action:
            body["details"] = self.action
        return body


def environment_error(name: str, value: str, wanted: str) -> CNIError:
    """The variable `name` is malformed."""
    return CNIError(INVALID_ENVIRONMENT, f"{name} is {shown(value)}, it must be {wanted}")


def config_error(name: str, value: object, wanted: str) -> CNIError:
    """The field `name` of the configuration is malformed."""
    return CNIError(INVALID_CONFIG, f"{name} is {shown(value)}, it must be {wanted}", details="Correct the .conflist.")


def shown(value: object) -> str:
    """`value` as JSON, in at most 60 characters."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
