"""Builders of API objects that all tests share: pods here, Services and slices beside them."""
