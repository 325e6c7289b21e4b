"""Tables that the stages before `gradual_rank.evaluate` write, made by hand.

Bars that some of their numbers meet exactly are not passed. A column `t` is a time over log(1 /
init scale); what plays no part is left out.
"""

import math

import numpy as np
import pandas as pd

from tests.stages.made import table

SIGNIFICANT, LASTING, RISEN, N_BUDGETS = 0.25, 0.25, 0.5, 5
TINY, RETURNED, NEAR = -4, 0.01, 0.05
PROBLEMS = """name\tn_seeds\tn_samples\td_model\tn_layers\tn_heads\tframes\tdrawn\tteacher
paper\t3\t9\t2\t\t\t\tfalse\tgaussian
small\t4\t7\t\t2\t5\tcommon\ttrue\tuniform
"""
MADE = {
    # Seed 8 loses coordinate 1 and seed 5 coordinate 2; the second that joins there is too small.
    "predictions/small_stages": """
seed stage time next_time gap  coordinate loss strict g           p           charge         dropped
8    0     0    4         .5   -1         1.5  1e-4   2,-1,.5,4   0,0,0,0     0,0,0,0        ,
8    1     4    5         .25  3          .75  .04    1,-.5,.25,0 0,0,0,.8    .5,-.25,.125,1 ,
8    2     5    8         1    1          .5   .03    1,0,.5,0    0,-.6,0,.9  .75,-1,.25,1   ,
8    3     8    inf       inf  0          .25  .02    0,.5,.25,0  .7,0,0,1    1,-.5,.5,1     1,
5    0     0    3         .75  -1         2    1e-4   -1,.5,-2,.1 0,0,0,0     0,0,0,0        ,
5    1     3    6         1.5  2          1    .06    -.5,1,0,.25 0,0,-.5,0   -.5,.25,-1,0   ,
5    2     6    7.5       .5   1          .5   .05    -1,0,0,.5   0,.1,-.5,0  -.75,1,-1,.125 ,
5    3     7.5  10        2    0          .1   .07    0,0,1,.5    -.45,.2,0,0 -1,1,.25,.25   2,
""",
    "predictions/paper_stages": """
seed stage time next_time gap coordinate loss strict g     p    charge dropped
3    0     0    5         1   -1         1    .01    .5,-1 0,0  0,0    ,
3    1     5    6         .5  1          .6   .09    .25,0 0,-1 .5,-1  ,
6    0     0    4         2   -1         .9   .02    1,2   0,0  0,0    ,
""",
    # In no order; from 1e-4 one falls before it rises again, and from 1e-8 one is never measured.
    "flows/small_events": """
seed log10_init_scale t    coordinate sign rises
8    -4               4.2  3          1    True
8    -2               0    3          1    True
8    -2               9.5  1          -1   True
8    -2               9    0          1    True
8    -4               5.5  1          -1   True
8    -4               9.2  0          1    True
8    -4               8.5  1          -1   False
8    -4               9    1          1    True
8    -8               4.1  3          1    True
8    -8               5.1  1          -1   True
8    -8               8.4  0          1    True
8    -8               8.5  1          -1   False
5    -2               3.6  2          -1   True
5    -2               7    0          -1   True
5    -4               3.3  2          -1   True
5    -4               8.25 0          -1   True
5    -8               3.15 2          -1   True
""",
    "flows/paper_events": """
seed log10_init_scale t    coordinate sign rises
3    -4               5.5  1          -1   True
""",
    "predictions/small_events": """
seed log10_init_scale t    coordinate sign rises
8    -2               .5   3          1    True
8    -2               6.6  1          -1   True
8    -2               10   0          1    True
8    -4               4.41 3          1    True
8    -4               5.5  1          -1   True
8    -4               8    1          -1   False
5    -2               3.6  2          -1   True
5    -2               7.7  0          -1   True
5    -4               3.63 2          -1   True
5    -4               9.9  0          -1   True
5    -3               3.5  2          -1   True
""",
    "predictions/paper_events": """
seed log10_init_scale t    coordinate sign rises
3    -3               5.2  1          -1   True
""",
    "flows/small_grown": """
seed log10_init_scale t    coordinate sign rises
8    -2               .5   3          1    True
8    -4               4.6  3          1    True
8    -8               4.35 3          1    True
5    -2               3.9  2          1    True
5    -4               3.4  2          -1   False
5    -4               3.6  2          -1   True
5    -8               3.25 2          -1   True
""",
    "flows/paper_grown": """
seed log10_init_scale t    coordinate sign rises
3    -4               6    1          -1   True
""",
    "flows/small_plateaus": """
seed log10_init_scale stage rescaled_time loss p              charge
8    -4               0     2             9    1,1,1,1        9,9,9,9
8    -4               1     4.5           .85  .1,0,0,.7      1,-.5,.25,1
8    -4               2     6.5           .7   0,-.65,.3,.9   2.5,-.9,1,1
8    -4               3     9             .26  .75,0,0,.95    1,0,1,1
8    -8               1     4.5           .8   0,0,0,.75      1.25,-.75,.25,1
8    -8               2     6             .6   0,-.6,0,.9     1.5,-1.125,.5,1
5    -4               1     4.5           1.2  0,0,-.4,0      -1,1,-.9,.5
5    -4               2     6.75          .75  0,.25,-.5,0    -1.25,1,-1,.25
5    -4               3     9             .15  -.4,.2,0,0     -.9,1,1,1
5    -8               2     6.5           .55  0,.3,-.5,0     -1.125,1,-1,.5
""",
    "flows/paper_plateaus": """
seed log10_init_scale stage rescaled_time loss p     charge
3    -4               1     5.5           .7   .1,-1 .75,-1
""",
    "flows/small_times": """
seed log10_init_scale time rescaled_time loss p           charge
5    -2               0    0             1    0,0,0,0     0,0,0,0
5    -2               2    .5            .9   0,0,-.25,0  0,.25,-.5,0
5    -2               4    1             .8   0,0,-.5,0   0,.5,-1,0
5    -4               0    0             .7   0,0,.125,0  0,.75,0,0
5    -4               8    1             .6   0,0,.25,0   0,1,0,.25
""",
    "flows/paper_times": """
seed log10_init_scale time rescaled_time loss p    charge
3    -4               8    1             .4   .5,1 .5,0
""",
    "flows/small_twins": """
seed log10_init_scale head share predicted
8    -4               0    .25   .375
8    -4               1    .75   .625
8    -8               0    .5    .5625
2    -4               0    1     .75
""",
    "disturbed/returns": """
seed point kind   time noise       ratio_products ratio_weights
8    0     random 10   independent .01            .5
8    1     random 20   independent .005           .25
8    1     random 20   balanced    .004           .125
5    0     random 30   independent .002           .75
5    1     rise   40   independent .001           .875
8    1     random 20   everywhere  .625           2
5    1     rise   40   everywhere  .75            3
""",
    "disturbed/paths": """
seed point kind   time noise       after coordinates p         p_undisturbed
8    2     rise   50   independent 20    1,          .0625,    .03125,
8    2     rise   50   independent 7     1,          9,        0,
8    3     rise   60   independent 20    1,2         .05,-.02  0,0
8    3     rise   60   balanced    20    1,2         .5,0      0,0
5    2     rise   70   independent 20    0,3         .5,.03125 .25,0
5    0     random 80   independent 20    2,          1,        .5,
5    0     random 80   independent 0     2,          3,        .5,
""",
    "disturbed/kicks": """
seed stage noise       error
8    1     independent .5
8    2     independent .05
5    1     independent .125
5    1     balanced    .0625
5    1     none        .03125
""",
    "descents/conserved": """
seed rtol decay drift growth
8    1e-3 0     .5    7
8    1e-6 0     .125  6
5    1e-3 0     .25   5
5    1e-6 0     1e-3  4
5    1e-3 .5    .25   3
5    1e-6 .5    .125  2
""",
    # Coordinate 0 of seed 8 never activates in plain descent.
    "descents/events": """
form    share_of_limit seed t    coordinate rises
plain   .5             8    4.92 3          True
plain   .5             8    4.51 3          True
plain   .5             8    4    3          False
plain   .5             8    5.1  1          True
plain   .25            5    6.3  2          True
factors .5             8    4.1  3          True
factors .5             8    6.12 1          True
factors .5             8    10.1 0          True
""",
    "descents/ends": """
form    share_of_limit log10_init_scale seed learning_rate drift
plain   .5             -8               8    .5            2
plain   .25            -8               5    .25           3
factors .5             -8               8    .75           1
""",
    "descents/drop": """
method                                log10_init_scale coordinate sign rescaled_time lost
'Algorithm 1'                         -inf             2          1    1.5           False
'Algorithm 1'                         -inf             2          -1   40            False
'flow in log coordinates'             -8               2          -1   40.1          False
'flow in log coordinates'             -500             2          -1   39            False
'flow in log coordinates'             -500             2          1    1.6           False
'flow in log coordinates'             -90              2          -1   43            False
'factors gradient descent, float64'   -32              0          -1   3             False
'plain gradient descent, float64'     -32              2          -1   44            False
'plain gradient descent, float32'     -32              2          0    31            True
""",
    # At 1e-16 seed 9 has not risen.
    "rises": """
seed log10_init_scale time limit finite stepped
8    -8               4    2     4.4    4.1
8    -16              1    1.1   1.02   1
5    -8               7    4.9   5.95   7.7
5    -16              5    6     5.1    5.05
9    -8               8    9     8.4    8.1
""",
    # Time is a quarter of the step; from 1e-8, and of W_K, is not asked.
    "spectra": """
seed log10_init_scale step learning_rate matrix of       singular_values
5    -16              20   .25           W_VO   update   .6,.2
5    -16              40   .25           W_VO   update   .9,.5
5    -16              60   .25           W_VO   update   1.2,.7
5    -16              10   .25           W_VO   update   .1,.05
5    -16              40   .25           W_KQ   update   .55,.2
5    -16              60   .25           W_KQ   update   .8,.6
8    -16              10   .25           W_VO   update   .7,.1
8    -16              60   .25           W_VO   update   1,.4
8    -16              60   .25           W_KQ   update   .6,.2
9    -16              20   .25           W_VO   update   .8,.6
9    -16              20   .25           W_KQ   update   .4,.1
9    -16              20   .25           W_KQ   gaussian .9,.9
5    -16              20   .25           W_K    update   .9,.9
5    -8               20   .5            W_VO   update   .9,.9
8    -8               20   .5            W_VO   update   .9,.9
9    -8               20   .5            W_VO   update   .9,.9
""",
    "predictions/forecast": """
seed log10_init_scale source   end time rises
8    -2               forecast 100 10   True
8    -2               forecast 100 50   True
8    -2               measured 100 60   True
8    -2               measured 100 40   True
8    -2               measured 100 70   False
5    -2               forecast 80  20   True
5    -2               measured 80  90   True
5    -4               forecast 200 150  True
5    -4               measured 200 90   True
5    -4               limit    200 60   True
8    -2               limit    100 0    True
8    -2               limit    100 25   True
8    -2               limit    100 75   False
""",
}
FLOATS = ["t", "time", "next_time", "log10_init_scale", "rescaled_time", "after", "end"]
SCALES = {"descents/events": -8}  # of a table without the column
EMPTY_TWINS = pd.DataFrame(columns=["seed", "log10_init_scale", "head", "share", "predicted"])


def made():
    """The tables by their files, with what follows from their columns."""
    found = {name: table(text) for name, text in MADE.items()}
    for name, one in found.items():
        times = [column for column in FLOATS if column in one]
        one[times] = one[times].astype(float)
        if "t" in one:
            scale = one.get("log10_init_scale", SCALES.get(name))
            one["time"] = one.pop("t") * -scale * math.log(10)
        if "strict" in one:
            one["strictness_weights"] = one.pop("strict")
            one["strictness_products"] = 2 * one["strictness_weights"]
            one["learning_rate_limit"] = 1 / one["strictness_weights"]
            one["dropped"] = [places.astype(int) for places in one["dropped"]]
            one["n_dropped"] = one["dropped"].map(len)
            one["support"] = [p != 0 for p in one["p"]]
            one["n_active"] = [int(support.sum()) for support in one["support"]]
            joined = zip(one["p"], one["coordinate"], strict=True)
            one["sign"] = [int(np.sign(p[i])) if i >= 0 else 0 for p, i in joined]
    found["disturbed/paths"]["coordinates"] = [
        held.astype(int) for held in found["disturbed/paths"]["coordinates"]
    ]
    return found | {"flows/paper_twins": EMPTY_TWINS}
