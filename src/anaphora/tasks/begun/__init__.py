"""How a task begins with what another model has learnt: its symbols, its sizes, its weights."""
