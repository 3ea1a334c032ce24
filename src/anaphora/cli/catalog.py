"""The names of all commands with one line each, so that ``--help`` need not import any of them."""

from __future__ import annotations

SECTIONS: dict[str, dict[str, str]] = {
    "Train": {
        "demo": "Train a translator of number words and look inside it.",
        "train": "Train a model on your data.",
        "resume": "Continue a run that was stopped or killed.",
        "distill": "Train a model on what trained runs predict.",
        "synthesize": "Write pairs to train on with a trained translator.",
        "adapt": "Adapt a transcriber to a voice, without transcripts.",
        "study": "Run an experiment of the lectures and plot it.",
    },
    "Use": {
        "predict": "Predict outputs for texts, sounds or pictures.",
        "listen": "Write down speech while it is still being said.",
        "sample": "Write new text with a trained language model.",
        "search": "Find the nearest of many inputs with a trained embedder.",
        "cluster": "Sort inputs into clusters with a trained embedder.",
        "score": "Measure a trained model on data with known answers.",
        "compare": "Compare runs on the same examples, with intervals and tests.",
    },
    "Ship": {
        "import": "Make a run folder from a public model or a weights file.",
        "serve": "Answer requests over HTTP with trained models.",
        "export": "Write a trained model as ONNX, for transformers, ARPA and others.",
    },
    "Look inside": {
        "inspect": "Draw what a trained model does with one input.",
        "studio": "Open a page over your runs: watch, compare, look inside.",
    },
    "About": {
        "learn": "Read a lesson: code, pictures and exercises that run.",
        "corpora": "List the embedded corpora, show or write their examples.",
        "models": "List the presets of each task.",
        "explain": "Explain a setting: its meaning, its values, its default.",
        "doctor": "Check this machine: versions, devices, disk, permissions.",
        "verify": "Check that every file of a run is whole.",
        "sign": "Sign every file of a run with a key, for verify --key.",
    },
}

COMMANDS: dict[str, str] = {name: line for section in SECTIONS.values() for name, line in section.items()}
KNOWN_AS = {
    "settings": "explain", "options": "explain", "presets": "models", "evaluate": "score", "eval": "score", "test": "score",
    "generate": "sample", "fit": "train", "back-translate": "synthesize", "ensemble": "synthesize", "datasets": "corpora",
}  # fmt: skip
"""What others may call a command."""
TASK_COMMANDS = (
    "translate", "classify", "tag", "language", "forecast", "transcribe", "caption", "answer", "embed",
)  # fmt: skip
