"""The image manager, the credentials, records and progress of its pulls, and the image collector."""
