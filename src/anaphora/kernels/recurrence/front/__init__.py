"""From a step function to a plan: trace it, derive its backward pass, decide what is computed when."""
