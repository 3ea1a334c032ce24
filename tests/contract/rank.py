"""One process of a group: ``rank.py CASE`` trains what ``CASE``, a pickled ``(trained, place, settings)``, says, and writes its answers.

`promises.two_processes` starts two.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from checks import said

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    trained, place, settings = pickle.loads(Path(sys.argv[1]).read_bytes())
    model = trained.fit(place / "run", settings)
    answers = [] if "predict" in trained.case.lacks else said(trained.case, model, trained.case.inputs())
    (place / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(answers))
