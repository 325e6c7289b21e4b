"""Tables that the figures of gradual rank are drawn from, made by hand."""

METRICS = {
    "problems": """
name  d_model n_layers n_heads drawn studied frames
paper 3       -        -       True  False   -
small 2       -        -       True  True    -
free  2       2        1       False False   own
tied  2       1        2       False False   common
basis 2       3        1       False False   standard
""",
    # In no order; seed 2 of small loses a coordinate.
    "stages": """
problem seed stage time next gap coordinate loss n_active n_dropped limit strict weights p
small   2    1     30   60   6   1          .9   1        0         2     .1     .15     0,1,0,0
small   2    0     0    30   3   -1         1    0        0         inf   .01    .02     0,0,0,0
small   2    2     60   inf  inf 2          .7   2        1         4     .2     .25     0,1,0,1
small   5    3     9    inf  inf 1          .2   3        0         1.25  .6     .35     -1,2,0,3
small   5    0     0    4    1   -1         1    0        0         inf   .02    .03     0,0,0,0
small   5    1     4    5    .5  3          .8   1        0         2     .3     .45     0,0,0,4
small   5    2     5    9    3   0          .5   2        0         1.6   .4     .55     -2,0,0,5
paper   4    0     0    20   4   -1         1    0        0         inf   .03    .04     0,0,0,0,0,0
paper   4    1     20   24   0   4          .6   1        0         3     .5     .65     0,0,0,0,6,0
paper   4    2     24   inf  inf 1          .3   2        0         3     .7     .75     0,8,0,0,7,0
free    1    0     0    3    .3  -1         1    0        0         inf   .05    .06     0,0
free    1    1     3    6    .6  1          .5   1        0         2     .8     .85     0,9
tied    1    0     0    2    .4  -1         1    0        0         inf   .07    .08     0,0
tied    1    1     2    4    .8  0          .4   1        0         2     .9     .95     8,0
basis   1    0     0    5    1   -1         1    0        0         inf   .09    .1      0,0
basis   1    1     5    9    .9  1          .3   1        0         2     1      1.1     0,7
""",
    "errors": """
problem seed scale time order loss product final finite worst same constant ratio
small   5    -1    .4   .9    .3   .21     .31   .2     .22   .6   1.5      1.1
small   5    -8    .2   .8    .002 .11     .12   .1     .15   .9   1.25     .9
small   2    -1    .1   .6    .5   .41     .51   .3     .32   .7   2.5      1.05
small   2    -8    .05  1     .04  .31     .32   -      -     1    2.25     .8
paper   4    -4    .3   .7    .01  .05     .06   .07    .08   .5   3.5      .95
basis   1    -4    .25  .85   .02  .15     .16   .17    .18   .4   4.5      .7
basis   4    -4    .35  .75   .03  .25     .26   .27    .28   .3   5.5      .6
basis   1    -16   .15  .95   .01  .35     .36   .37    .38   .2   6.5      .5
""",
    "trajectories": """
problem seed log10_init_scale rescaled_time loss p
small   5    -8               0             1    0,0,0,0
small   5    -8               9.25          .3   1,2,3,4
small   5    -1               0             .9   .1,0,0,.2
small   5    -1               8             .4   4,3,2,1
paper   4    -4               0             1    0,0,0,0,0,0
paper   4    -4               24.5          .35  6,5,4,3,2,1
free    1    -4               0             1    0,0
free    1    -4               5             .6   1,3
free    1    -16              0             1    0,0
free    1    -16              5.5           .55  2,5
tied    1    -16              0             1    0,0
tied    1    -16              3             .45  7,6
basis   1    -16              0             1    0,0
basis   1    -16              8             .35  4,3
""",
    "charges": """
problem seed log10_init_scale rescaled_time charge
small   5    -1               0             .9,.9,.9,.9
small   5    -8               6             -.5,.5,.25,1
small   5    -8               0             0,.125,0,0
""",
    "departed": """
problem seed stage coordinate pull
small   2    3     0          .5
small   2    3     1          2
free    1    3     2          .1
""",
    "rises": """
seed log10_init_scale time limit finite stepped
5    -4               5    4     6      5.5
5    -16              8    6     8.8    7.6
7    -16              4    5     4.4    4.2
""",
    "full_ratios": """
seed first_KQ_over_first_VO second_over_first_VO first_stable_rank_VO stable_VO stable_KQ
5    2                      1.5                  1.1                  1.3       1.7
7    3                      2.5                  1.2                  1.4       1.8
""",
    "full_weights": """
seed log10_init_scale matrix step rescaled_time singular_values
5    -16              W_KQ   9    2             3,1
5    -16              W_VO   9    2             5,4
5    -16              W_KQ   1    .5            .25,.125
5    -16              W_VO   1    .5            .75,.5
""",
    "path_ends": """
seed kind   noise       distance
5    rise   balanced    .2
5    rise   independent .4
7    rise   balanced    .1
7    random balanced    .9
""",
    "ranks": """
seed log10_init_scale rescaled_time measured finite limit
5    -32              0             1        2      3
5    -32              7             5        4      9
5    -1               0             1        4      1
5    -2               0             2        2      5
5    -2               7             6        7      6
7    -2               0             4        9      1
5    -4               0             3        1      3
5    -8               0             7        5      8
5    -8               7             8        8      9
""",
    "forecast": """
seed log10_init_scale time forecast measured
5    -4               0    3        1
5    -4               70   4        8
5    -2               0    2        1
5    -2               30   6        5
7    -2               0    9        4
""",
    "returns": """
seed kind   noise       ratio_products ratio_weights
5    random balanced    .5             .6
7    random balanced    .3             .9
5    random independent .2             .7
5    rise   independent .1             .8
""",
    "kicks": """
seed stage noise       error
5    1     independent .5
5    2     independent .25
5    1     none        1e-12
5    1     balanced    .125
""",
    # The first half of the coordinates, 0 and 1, are those of W_KQ.
    "paths": """
point kind   time after coordinates p    p_undisturbed
1     random 317  0     1,2         1,2  0,0
1     random 317  50    1,2         3,5  1,4
0     random 120  0     0,1         1,4  0,2
0     random 120  50    0,1         2,2  1,0
2     rise   41   50    2,3         7,6  5,4
2     rise   41   0     2,3         3,2  1,0
3     rise   42   0     2,          6,   5,
4     rise   43   0     1,          8,   7,
5     rise   44   0     0,          9,   4,
""",
    "descents": """
form    share_of_limit log10_init_scale seed learning_rate time_error drift
plain   .25            -32              7    .1            .2         inf
plain   .25            -32              5    .1            .3         8
plain   .8             -32              7    .6            .4         inf
plain   .8             -32              5    .5            .5         9
factors .5             -32              7    .2            .6         4
factors .5             -32              5    .2            .7         5
""",
    "drop": """
method        log10_init_scale coordinate sign rescaled_time lost
'Algorithm 1' -inf             2          1    1.25          False
'Algorithm 1' -inf             2          -1   67            False
flow          -32              0          1    1.5           False
flow          -300             1          1    2.75          False
plain         -32              2          0    31            True
flow          -32              2          -1   66            False
""",
    "twins": """
problem seed log10_init_scale head share predicted
tied    4    -16              0    .3    .4
tied    4    -4               0    .35   .45
tied    1    -16              0    .2    .1
tied    1    -16              1    .8    .9
""",
}
OPTIMIZERS = {
    # Two known optimisers, and one that only a user's table has.
    "optimizers": """
optimizer teacher_rank log10_init_scale seed first_rise half end order separate least most
muon      5            -2               4    2          1.5  3   -.5   .1       .6    .7
muon      5            -8               4    3          1    4   -.9   .2       .8    .9
muon      3            -8               4    5          2    3   -.7   .3       .4    .5
gd        5            -2               4    1          1.5  3   .4    .4       .1    .2
gd        5            -8               4    4          1.25 2   .9    .5       .2    .3
gd        3            -8               4    5          2    3   .7    .6       .3    .4
own       5            -2               4    4          2    3   .1    .7       .5    .6
own       5            -8               4    6          3    4   .2    .8       1.1   1.2
own       3            -8               4    7          2    3   .3    .9       .9    1
""",
    "courses": """
optimizer log10_init_scale step time W_VO
muon      -8               4    2    4,1
muon      -8               0    0    .25,.125
gd        -8               0    0    .5,.375
gd        -8               4    2    3,2
own       -8               0    0    6,5
""",
    "few": """
optimizer n_samples noise seed effective_rank_KQ best_test_loss last_test_loss
muon      1         0     4    1.1               .1             .2
muon      3         0     4    1.2               .1             .2
muon      20        .5    4    1.3               .3             .4
gd        1         0     4    2.1               .1             .2
gd        20        .5    4    2.3               .5             .6
gd        20        .5    6    2.4               .7             .8
""",
    "noisy_paths": """
optimizer seed step loss test_loss
gd        4    0    1    1
gd        6    0    .5   .75
gd        4    5    .25  .5
gd        6    5    .125 .25
muon      4    0    .9   .8
""",
    "flow": "method time p\nflow 1 4,-1\nflow 0 .25,0",
    "descent": """
method  log10_init_scale time p
weights -8               0    .0625,0
weights -8               .5   1,1
weights -8               1    1,1
weights -8               1.5  9,-4
""",
    "diagonal": """
optimizer       log10_init_scale seed order
gd              -4               4    -
sign            -4               4    -.5
adam            -4               4    .25
adam            -8               4    .75
'gradient flow' -4               4    1
'gradient flow' -4               6    .875
""",
    "distances": """
method  log10_init_scale seed time distance
roots   -inf             4    0    .1
roots   -inf             6    0    .3
roots   -inf             4    1    .5
weights -4               4    0    .9
weights -8               4    0    .2
weights -8               4    1    .4
weights -8               6    1    .8
""",
    "slopes": """
seed beta_2 slope_KQ slope_VO
4    .999   1.5      2.5
4    .9     1.25     2.25
6    .9     1        2
""",
}
DECAY = {
    "heads": """
seed share log10_init_scale first_rise undecayed rank
6    0     -2               2          2         8
6    .5    -2               4          2.5       7
4    .5    -8               9          3         3
4    0     -8               3          4         5
6    0     -8               5          5         4
4    1.5   -8               inf        4         0
""",
    "full_rises": """
seed share log10_init_scale first_rise undecayed
4    .25   -2               6          4
4    1.5   -2               inf        4
""",
    "full_rests": """
seed share rank_KQ rank_VO
4    .5    1       2
4    0     3       4
""",
    "joins": """
log10_init_scale predicted without measured
-2               1         2       3
-8               4         6       5
-8               7         9       8
""",
    "plateaus": """
seed share stage time p
4    .5    1     3    1,0
4    .5    0     0    0,0
4    0     1     2    7,7
""",
    "course": """
seed share log10_init_scale rescaled_time p
4    .5    -8               9             .75,.5
4    .5    -8               2             .25,.125
""",
}
SIZE = {
    "spectra": """
name         batches log10_init_scale matrix step rescaled_time singular_values
full         2       -4               W_KQ   9    2             3,1
full         2       -4               W_KQ   0    0             .25,.125
full         2       -4               W_VO   9    2             5,4
full         2       -4               W_VO   0    0             .75,.5
full_batches 2       -4               W_VO   0    0             9,9
""",
    "directions": """
name         batches log10_init_scale matrix direction rise finite
full         2       -4               W_KQ   0         46   18.4
full         2       -4               W_VO   0         23   9.21
full         2       -4               W_VO   1         18.4 9.3
full         2       -4               W_VO   2         inf  9.4
full_batches 3       -4               W_VO   0         27.6 9.5
""",
    "losses": """
name             batches log10_init_scale rescaled_time loss
full             2       -4               0             1
full             2       -4               6             .5
full_batches     2       -4               6             .75
full_batches     3       -4               6             .25
diagonal_batches 5       -1               2             .125
""",
    "batches": """
name             batches log10_init_scale predicted measured flow
diagonal_batches 5       -1               2             3        4
diagonal_batches 5       -1               5             7        6
""",
}
LONG = {  # of columns, in whose place a shorter name stands in the made tables
    "stages": {
        "next": "next_time",
        "limit": "learning_rate_limit",
        "strict": "strictness_products",
        "weights": "strictness_weights",
    },
    "errors": {
        "scale": "log10_init_scale",
        "time": "time_error_median",
        "order": "order_agreement",
        "loss": "plateau_loss_error",
        "product": "plateau_product_error",
        "final": "final_product_error",
        "finite": "finite_error_median",
        "worst": "finite_error_max",
    },
    "full_ratios": {"stable_VO": "final_stable_rank_VO", "stable_KQ": "final_stable_rank_KQ"},
    "optimizers": {
        "half": "stable_rank_half",
        "end": "stable_rank_end",
        "least": "slope_least",
        "most": "slope_most",
    },
}
