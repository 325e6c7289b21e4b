"""The image files of a folder of one's own, as they are fetched."""

from lib.work.schemas import schema

FILES = schema("""
An image file of a class.
part    text     train or test; all where the folder has no parts
class   text     the name of its folder
name    text     its path from the folder that holds all
bytes   integer  its size
sha256  text     its digest
""")
