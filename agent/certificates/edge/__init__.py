"""Certificate files, CertificateSigningRequests, and the metrics of certificates."""
