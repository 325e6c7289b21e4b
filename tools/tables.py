"""Write the columns of every table that stages read into stages/tables.txt: `make generated`.

`lib/work/foreign.py` reads that list. A table of data/ that is not there now, as in a fresh clone,
keeps its line.
"""

from pathlib import Path

from lib.work.foreign import LISTED, described, read_list

ROOT = Path(__file__).parents[1]


def listing(root: Path, before: str) -> str:
    """The list for a project, and what was listed before of its data."""
    kept = {table.path: table for table in read_list(before) if table.path.startswith("data/")}
    files = [file for folder in ("data", "metrics") for file in (root / folder).rglob("*.parquet")]
    names = {
        file.relative_to(root).as_posix(): file for file in files if file.name != "steps.parquet"
    }  # of runs
    found = kept | {name: described(file, name) for name, file in names.items()}
    return "".join(found[name].line() + "\n" for name in sorted(found))


def main() -> None:
    LISTED.write_text(listing(ROOT, LISTED.read_text()))


if __name__ == "__main__":
    main()
