"""One road to an answer for all callers: `session` is the road, `torch_engine` computes; exported graphs have an engine in `runtime`."""
