"""The loop, schedules, checkpoints, run folders. They do not know tasks."""
