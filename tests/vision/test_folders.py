"""Which files of a folder are images of which class, and which of them are test images."""

import pytest
from PIL import Image

from lib.files.files import InputError
from lib.vision.folders import SUFFIXES, list_images, split
from lib.vision.pictures import FORMATS
from lib.vision.tables.fetched import FILES


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())


def table(**n):
    """As many images of each class, without parts."""
    rows = [("all", label, f"{label}/{i}", 1, "") for label, k in n.items() for i in range(k)]
    return FILES.frame(rows)


def test_class_folders_side_by_side_have_no_parts_and_only_their_images_count(tmp_path):
    write(
        tmp_path, "b/2.JPG", "b/10.png", "a/x y (1).jpeg", "a/notes.txt", "a/.hidden.jpg", ".git/c"
    )
    assert list_images(tmp_path) == [
        ("all", "a", "a/x y (1).jpeg"),
        ("all", "b", "b/10.png"),
        ("all", "b", "b/2.JPG"),
    ]


def test_a_file_counts_by_every_name_of_a_format_that_is_decoded(tmp_path):
    wanted = {name for name, of in Image.registered_extensions().items() if of in FORMATS}
    assert wanted == SUFFIXES
    assert ".jfif" in SUFFIXES
    write(tmp_path, "a/1.jfif", "b/2.JPE")
    assert [file.name for file in list_images(tmp_path)] == ["a/1.jfif", "b/2.JPE"]


@pytest.mark.parametrize("name", ["val", "test"])
def test_a_folder_in_parts_keeps_them(tmp_path, name):
    write(tmp_path, "train/a/1.jpg", "train/b/2.jpg", f"{name}/b/3.jpg")
    assert list_images(tmp_path) == [
        ("train", "a", "train/a/1.jpg"),
        ("train", "b", "train/b/2.jpg"),
        ("test", "b", f"{name}/b/3.jpg"),
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a/1.jpg"], r"wanted two class folders with images, or more, got \['a'\]"),
        (["1.jpg", "2.jpg"], r"wanted two class folders with images, or more, got \[\]"),
        (["a/1.jpg", "b/1.txt"], r"b: wanted image files \(.*\) of a class, got none"),
        (
            ["a/1.jpg", "b/deep/1.jpg"],
            "b: wanted the image files of a class, got the folder ",
        ),
        (
            ["train/a/1.jpg", "train/b/1.jpg", "val/c/1.jpg"],
            r"wanted training images of every class, got none of \['c'\]",
        ),
        (["a/1.jpg", "b/\n.jpg"], r"b: wanted names of printable characters, got '\\n.jpg'"),
    ],
    ids=["one class", "no class", "no image", "a folder", "unknown class", "a line break"],
)
def test_a_folder_of_another_layout_is_refused(tmp_path, names, message):
    write(tmp_path, *names)
    with pytest.raises(InputError, match=message):
        list_images(tmp_path)


@pytest.mark.parametrize("what", ["a/2.jpg", "c"])
def test_a_link_that_leaves_the_folder_is_refused(tmp_path, what):
    write(tmp_path, "images/a/1.jpg", "images/b/1.jpg", "elsewhere/1.jpg")
    target = tmp_path / "elsewhere" / ("1.jpg" if what.endswith("jpg") else "")
    (tmp_path / "images" / what).symlink_to(target)
    with pytest.raises(InputError, match=f"{what}: wanted files of .*, got a link to .*elsewhere"):
        list_images(tmp_path / "images")


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="source_folder: wanted a folder of class folders, got"):
        list_images(tmp_path / "images")


def test_a_share_of_every_class_is_drawn_to_be_tested(tmp_path):
    files = table(many=40, few=3, two=2)
    parts = split(files, 0.25, seed=1)
    assert parts["test"]["class"].value_counts().to_dict() == {"many": 10, "few": 1, "two": 1}
    assert sorted([*parts["train"]["name"], *parts["test"]["name"]]) == sorted(files["name"])
    assert set(parts["test"]["name"]) != set(split(files, 0.25, seed=2)["test"]["name"])


def test_labels_number_the_classes_by_name():
    parts = split(table(dog=3, cat=3), 0.3, seed=0)
    for files in parts.values():
        assert dict(zip(files["class"], files["label"], strict=True)) == {"cat": 0, "dog": 1}


def test_a_class_of_one_image_cannot_be_split():
    with pytest.raises(InputError, match="b: wanted two images of a class, or more, got 1"):
        split(table(a=2, b=1), 0.5, seed=0)
