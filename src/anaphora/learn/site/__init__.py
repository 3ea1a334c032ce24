"""The documentation as a site of plain files: ``anaphora learn --site FOLDER``. It needs no network and no server."""

from anaphora.learn.site.build import build

__all__ = ["build"]
