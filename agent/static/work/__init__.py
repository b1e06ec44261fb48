"""Follows the manifests, hands their pods over, and keeps the mirror pods."""
