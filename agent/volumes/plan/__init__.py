"""Pure decisions: what each volume is, its files, requests to CSI drivers, when to renew tokens and certificates."""
