"""Batches of CIFAR images as they were published, with few images."""

import dataclasses
import hashlib
import pickle

from lib.vision.cifar import OFFICIAL, Batch


def pickled(pixels, labels, key=b"labels"):
    """A batch as Python 2 and an old numpy wrote it; labels that are not read are all zero."""
    others = dict.fromkeys((b"coarse_labels", b"fine_labels"), [0] * len(labels))
    batch = {b"data": pixels, **others, key: labels}
    content = pickle.dumps(batch, 3).replace(b"numpy._core", b"numpy.core")
    return content.replace(b"X\x02\x00\x00\x00u1", b"U\x02u1")


def published(monkeypatch, folder, source, contents):
    """Write these files, as if they were the official ones; the last is the test part.

    Each image takes 3072 bytes of a file, and less than that is around them.
    """
    batches = []
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        digest = hashlib.md5(content).hexdigest()
        batches.append(Batch(name, len(content) // 3072, len(content), digest))
    *train, test = batches
    known = dataclasses.replace(OFFICIAL[source], train=tuple(train), test=(test,))
    monkeypatch.setitem(OFFICIAL, source, known)
