"""The driver's folder, image files, loop devices, file systems and mounts."""
