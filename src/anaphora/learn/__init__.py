"""Lessons: pages that are programs, with exercises that are checked.

    import anaphora as an

    print(an.learn.check("14.1", 7))       # right, or a hint

``anaphora learn`` lists the lessons. Each is one Markdown file (docs/learn) from which the terminal page, the notebook
and the script are made.
"""

from anaphora.learn.exercise import Verdict, check
from anaphora.learn.page import Block, Lesson, lesson, lessons

__all__ = ["Block", "Lesson", "Verdict", "check", "lesson", "lessons"]
