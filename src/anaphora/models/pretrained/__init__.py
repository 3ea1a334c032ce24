"""Models that were trained before, in the service of others."""
