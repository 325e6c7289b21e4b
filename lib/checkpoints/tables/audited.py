"""What an audit of snapshots says of each matrix, between two neighbours of a training."""

from lib.work.schemas import schema

AUDITED = schema("""
A matrix at a snapshot of a training, and by how much it moved since the one before.
run     text     the name of the training
before  integer  the step of the snapshot before
step    integer  the step
tensor  text     the name of the matrix
digest  text     SHA-256 of its bytes
moved   number   the Frobenius norm of the difference
""")
