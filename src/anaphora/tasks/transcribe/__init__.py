"""The task `transcribe`: speech, pen strokes and other frames into text."""
