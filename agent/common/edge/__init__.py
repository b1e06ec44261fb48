"""Files and inotify."""
