"""The log files: read and follow them (log_reader), rotate them (log_folder)."""
