"""Forecasting: the next values of time series."""
