"""When gradient descent activates what the flow does, and when what had left returns."""

import pandas as pd

Table = pd.DataFrame


def descent_errors(events: Table, ends: Table, flow: Table) -> Table:
    """Beside how each descent ended, its median time error against the flow; 1 where it never activates."""
    key = ["form", "share_of_limit", "seed"]
    scale = float(ends["log10_init_scale"].iloc[0])
    flow = flow[flow["rises"] & (flow["log10_init_scale"] == scale)]
    truth = flow.groupby(["seed", "coordinate"])["time"].min().rename("flow")
    times = events[events["rises"]].groupby([*key, "coordinate"])["time"].min()
    both = ends[key].merge(truth.reset_index(), on="seed").join(times, on=[*key, "coordinate"])
    both["error"] = ((both["time"] - both["flow"]).abs() / both["flow"]).where(both["time"].notna(), 1.0)
    error = both.groupby(key)["error"].median().rename("time_error")
    return ends.merge(error.reset_index(), on=key, how="left")


def return_errors(returns: Table, truth: str) -> pd.Series:
    """The relative error of the time at which something returned, by method, at its smallest scale."""
    first = returns.sort_values("log10_init_scale", kind="stable").groupby("method")["rescaled_time"].first()
    return (first / float(first[truth]) - 1).abs()
