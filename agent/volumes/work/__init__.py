"""The volume manager and what it uses: watched API objects, tokens, certificates, CSI volumes."""
