"""Fetch the official files of a data set: embedded, downloaded, or from a local folder.

Each is compared with its digest. In a folder of one's own, each file is described by its digest.
"""

from lib.files.files import write_files
from lib.files.inputs import write_sums
from lib.vision.archives import official_files
from lib.vision.digits import digits_file
from lib.vision.folders import listed
from lib.vision.sources import Cifar, Digits, OwnImages, read_source
from lib.vision.tables.fetched import FILES
from lib.work.command import OutFolder, run


def main(section: str, official: OutFolder) -> None:
    source = read_source(section)
    match source:
        case Digits():
            write_files(official, {"digits.csv.gz": digits_file().read_bytes()})
            write_sums(official)
        case Cifar():
            for name, content in official_files(source):
                write_files(official, {name: content})
                print(f"{official / name}: {len(content)} bytes, the official file")
        case OwnImages():
            FILES.write(listed(source.source_folder, section), official / "files.parquet")


if __name__ == "__main__":
    run(main)
