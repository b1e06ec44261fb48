"""The syntax of labels and qualified names (k8s.io/apimachinery/pkg/util/validation), as patterns for fullmatch()."""

from __future__ import annotations

import re

NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
PREFIX = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/"
LABEL_KEY = re.compile(f"({PREFIX})?{NAME}")
LABEL_VALUE = re.compile(f"({NAME})?")
