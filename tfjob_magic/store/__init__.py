"""What lies on disk: run directories, code dirs, held ports, the ledger."""
