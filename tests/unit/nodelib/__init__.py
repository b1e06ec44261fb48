"""Tests of `nodelib`; those of the API client run against a fake API server."""
