"""The Open Inference Protocol v2, as KServe, Triton and MLServer speak it: `routes`, `tensors`, and what `tasks` make of them."""
