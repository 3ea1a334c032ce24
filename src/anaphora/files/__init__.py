"""The one door for files: everything a user's data or a run folder holds is opened and bounded here.

A stranger may have written the file. So only plain files are opened (no device, named pipe or socket; in a run folder
no link), sizes are compared with a limit before memory is taken, and JSON is bounded in size, depth and numbers.
What is refused raises `Refused`, an ``OSError`` whose ``strerror`` is a clause for the caller's sentence.

`anaphora.files.unpacking` reads compressed files, `anaphora.files.arrays` files of numbers.
"""

from anaphora.files.bounds import Limits, limits
from anaphora.files.opening import (
    Refused,
    clause,
    is_folder,
    open_plain,
    open_stream,
    read_bytes,
    read_tail,
    streamed,
)
from anaphora.files.parsing import parse_json

__all__ = [
    "Limits",
    "Refused",
    "clause",
    "is_folder",
    "limits",
    "open_plain",
    "open_stream",
    "parse_json",
    "read_bytes",
    "read_tail",
    "streamed",
]
