"""The estimators users touch, their presets and metrics."""
