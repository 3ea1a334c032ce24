"""Whole models, built from parts passed in. They do not know how they are trained."""
