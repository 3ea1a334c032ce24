"""The cases of tools/same.py, and how each is run and put into a form that can be compared."""
