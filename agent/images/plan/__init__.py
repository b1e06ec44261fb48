"""Pure decisions: references and policies, credentials, records of pulls, progress, and which images to remove."""
