"""How a task begins with what another model has learned: its symbols, its sizes, its weights."""
