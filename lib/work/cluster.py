"""Which cluster computes, as the environment says; none where it says nothing."""

from lib.files.files import InputError

# of the environment, not of params.yaml: no bit of a result depends on who computes it
WORKERS = "LAB_WORKERS"


def cluster(workers: str) -> str | None:
    """The address of the Ray cluster that `LAB_WORKERS` names, `auto` for the one of this machine;
    None for no cluster.

    Raises `InputError` for what names neither a cluster nor this machine's own processes.
    """
    if workers in ("", "local"):
        return None
    place, _, address = workers.partition(":")
    if place != "ray" or not address or address == "//":
        raise InputError(
            f"{WORKERS}: wanted local, ray:auto, ray:HOST:PORT or ray://HOST:PORT, got {workers!r}"
        )
    return workers if address.startswith("//") else address
