"""Forecasts of one series from its own past that take a second to fit: exponential smoothing, autoregression of values and of differences from
the last season, and one linear map of a window. Alone each is sometimes far off; their median seldom is."""
