"""Carries out install, uninstall, join, leave, package and payload, one file each."""
