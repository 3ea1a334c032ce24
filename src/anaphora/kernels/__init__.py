"""The fast inner loops. They know arrays, not modules, text or files."""
