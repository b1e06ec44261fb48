"""The CPU topology read from sysfs, and the metrics of the managers."""
