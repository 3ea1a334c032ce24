"""From series to forecasts."""
