"""The gRPC client of CRI."""
