"""The local web page over a folder of runs."""
