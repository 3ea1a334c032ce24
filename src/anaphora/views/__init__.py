"""Each picture as data and as a chart for the terminal, a file, a page."""
