"""What tools/mutate.py is made of: the faults it draws and the map of calls by which it chooses tests."""
