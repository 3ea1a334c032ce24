"""What goes into a model and what comes out: `text` and `vectors` as inputs, `vector` as an output. Numpy only."""
