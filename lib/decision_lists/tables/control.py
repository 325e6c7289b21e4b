"""What must fail beside attention that is trained, and what must not."""

from lib.work.schemas import schema

CONTROLS = schema("""
A control of a task.
task      text    the name of the task
control   text    what was trained, and where it was looked at
accuracy  number  the share of the positions that are right
""")
FOLDER = {"controls": CONTROLS}
