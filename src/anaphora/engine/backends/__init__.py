"""What can run a plan over time, each behind the same interface."""
