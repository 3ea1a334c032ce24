"""Names that the tests of the studio share."""

TEXT = "abcabd"
BAD_NAME = "<img src=x onerror=alert(1)>"
