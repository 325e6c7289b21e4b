"""What `gradual_rank.evaluate` makes of the tables of `evaluate_made`, worked out by plain loops.

A measure has its scale behind an @; what is infinite or nothing is a dash.
"""

MEASURES = """
conserved_drift | 5: 0.001 | 8: 0.125
conserved_drift.decayed | 5: 0.125
conserved_drift_falls | 5: 0.004 | 8: 0.25
conserved_drift_falls.decayed | 5: 0.5
conserved_growth | 5: 4 | 8: 6
drop_factors_time_error | factors gradient descent, float64: -
drop_flow_time_error | flow in log coordinates: 0.025
drop_reached_by_plain | plain gradient descent, float64: 1 | plain gradient descent, float32: 0
first_rise_finite.full | 5: 0.15 | 8: 0.1 | 9: -
first_rise_limit.full | 5: 0.3 | 8: 0.5 | 9: -
second_over_first_VO.full | 5: 3 | 8: - | 9: 1
kick_error_independent | seed 8, stage 1: 0.5 | seed 8, stage 2: 0.05 | seed 5, stage 1: 0.125
charge_constant.paper @ 1e-4 | 3: 0.575646
coordinates_that_leave.paper | 3: 0 | 6: 0
last_loss.paper | 3: 0.6 | 6: 0.9
limit_error.paper @ 1e-4 | 3: 0.1
order_agreement.paper @ 1e-4 | 3: 1
plateau_loss_error.paper @ 1e-4 | 3: 0.1
plateau_product_error.paper @ 1e-4 | 3: 0.1
relative_gap.paper | 3: 0.0833333 | 6: 0.5
rise_ratio.paper @ 1e-4 | 3: 1
wait_ratio.paper @ 1e-4 | 3: 1
strictness_weights.paper | 3: 0.09
supports.paper @ 1e-4 | 3: 1
time_constant.paper | 3: 0.921034
rank_error.adapter @ 1e-2 | 5: 0.8 | 8: 0.8
rank_error.adapter @ 1e-4 | 5: 0.2
rank_error_limit.adapter @ 1e-2 | 5: 0 | 8: 0.8
rank_error_limit.adapter @ 1e-4 | 5: 0
rank_error.head @ 1e-2 | 5: 0.2 | 8: 0.4
rank_error.head @ 1e-4 | 5: 0 | 8: 0.2
rank_error_limit.head @ 1e-2 | 5: 0 | 8: 0.8
rank_error_limit.head @ 1e-4 | 5: 0.2 | 8: 0.2
return_ratio_balanced | seed 8, point 1: 0.004
return_ratio_everywhere | seed 8, point 1: 0.625
return_ratio_independent | seed 8, point 0: 0.01 | seed 8, point 1: 0.005 | seed 5, point 0: 0.002
return_share_independent | 5: 1 | 8: 0.5
rise_share_independent | 5: 0 | 8: 0.5
charge_constant.small @ 1e-4 | 5: 1.03616 | 8: 0
charge_constant.small @ 1e-8 | 5: 1.15129 | 8: 3.45388
rise_ratio.small @ 1e-2 | 8: 0.5
rise_ratio.small @ 1e-4 | 5: 1.5 | 8: 0.8
rise_ratio.small @ 1e-8 | 5: 1 | 8: 1
wait_ratio.small @ 1e-2 | 8: 0
wait_ratio.small @ 1e-4 | 5: 0.52381 | 8: 0.512195
wait_ratio.small @ 1e-8 | 5: 1 | 8: 1
departed_pull.small | 5: -0.125 | 8: 0.0625
waiting_pull.small | 5: -0.0625 | 8: -0.03125
coordinates_that_leave.small | 5: 1 | 8: 1
finite_time_error.small @ 1e-2 | 5: 0.05 | 8: 0.208187
finite_time_error.small @ 1e-4 | 5: 0.15 | 8: 0.05
halving.small | 1e-4: 2.75
largest_share.small @ 1e-4 | 2: 1 | 8: 0.75
largest_share.small @ 1e-8 | 8: 0.5
last_loss.small | 5: 0.1 | 8: 0.25
limit_error.small @ 1e-2 | 5: 0.133333 | 8: 0.9
limit_error.small @ 1e-4 | 5: 0.1 | 8: 0.1
limit_error.small @ 1e-8 | 5: 0.525 | 8: 0.025
order_agreement.small @ 1e-2 | 5: 1 | 8: 0.333333
order_agreement.small @ 1e-4 | 5: 1 | 8: 1
order_agreement.small @ 1e-8 | 5: 1 | 8: 1
plateau_loss_error.small @ 1e-4 | 5: 0.2 | 8: 0.1
plateau_loss_error.small @ 1e-8 | 5: 0.05 | 8: 0.075
plateau_product_error.small @ 1e-4 | 5: 0.1 | 8: 0.1
plateau_product_error.small @ 1e-8 | 5: 0.2 | 8: 0.025
relative_gap.small | 5: 0.0666667 | 8: 0.05
share_error.small @ 1e-4 | 2: 0.25 | 8: 0.125
share_error.small @ 1e-8 | 8: 0.0625
strictness_weights.small | 5: 0.05 | 8: 0.02
supports.small @ 1e-4 | 5: 1 | 8: 0.666667
supports.small @ 1e-8 | 5: 0 | 8: 1
time_constant.small | 5: 5.29595 | 8: 0.690776
weights_return_ratio_independent | seed 8, point 0: 0.5 | seed 8, point 1: 0.25 \
| seed 5, point 0: 0.75
"""
DERIVED = {
    "stages": """
problem seed stage coordinate n_active n_dropped strictness_products charge
paper   3    0     -1         0        0         .02                 0,0
paper   3    1     1          1        0         .18                 .5,-1
paper   6    0     -1         0        0         .04                 0,0
small   8    0     -1         0        0         2e-4                0,0,0,0
small   8    1     3          1        0         .08                 .5,-.25,.125,1
small   8    2     1          2        0         .06                 .75,-1,.25,1
small   8    3     0          2        1         .04                 1,-.5,.5,1
small   5    0     -1         0        0         2e-4                0,0,0,0
small   5    1     2          1        0         .12                 -.5,.25,-1,0
small   5    2     1          2        0         .1                  -.75,1,-1,.125
small   5    3     0          2        1         .14                 -1,1,.25,.25
""",
    "trajectories": """
problem seed log10_init_scale rescaled_time loss p
paper   3    -4               1             .4   .5,1
small   5    -2               0             1    0,0,0,0
small   5    -2               .5            .9   0,0,-.25,0
small   5    -2               1             .8   0,0,-.5,0
small   5    -4               0             .7   0,0,.125,0
small   5    -4               1             .6   0,0,.25,0
""",
    "charges": """
problem seed log10_init_scale rescaled_time charge
small   5    -2               0             0,0,0,0
small   5    -2               .5            0,.25,-.5,0
small   5    -2               1             0,.5,-1,0
small   5    -4               0             0,.75,0,0
small   5    -4               1             0,1,0,.25
""",
    "twins": """
problem seed log10_init_scale head share predicted
small   8    -4               0    .25   .375
small   8    -4               1    .75   .625
small   8    -8               0    .5    .5625
small   2    -4               0    1     .75
""",
    "errors": """
problem seed log10_init_scale time_error_median time_error_max order_agreement finite_error_max
paper   3    -4               0.1               0.1            1               -
small   5    -8               0.525             1              1               -
small   5    -4               0.1               0.1            1               0.2
small   5    -2               0.133333          0.2            1               0.1
small   8    -8               0.025             0.05           1               -
small   8    -4               0.1               0.15           1               1
small   8    -2               0.9               1              0.333333        0.305263
""",
    "errors_1": """
final_product_error same     constant duration ratio
-                   1        0.575646 4.60517  1
-                   0        1.15129  1.84207  1
0.05                1        1.03616  2.7631   1.5
-                   -        -        -        -
0                   1        3.45388  4.60517  1
0.05                0.666667 0        3.68414  0.8
-                   -        -        2.30259  0.5
""",
    "departed": """
seed stage coordinate pull   problem
5    3     2          -0.125 small
8    3     1          0.0625 small
""",
    "ranks": """
seed log10_init_scale rescaled_time measured finite limit
5    -4               0             0        0      0
5    -4               1.875         0        0      0
5    -4               3.75          1        1      1
5    -4               5.625         1        1      1
5    -4               7.5           1        1      2
5    -2               0             0        0      0
5    -2               1.875         0        0      0
5    -2               3.75          1        1      1
5    -2               5.625         1        1      1
5    -2               7.5           2        1      2
8    -4               0             0        0      0
8    -4               2             0        0      0
8    -4               4             0        0      1
8    -4               6             2        2      2
8    -4               8             2        1      2
8    -2               0             1        0      0
8    -2               2             1        1      0
8    -2               4             1        1      1
8    -2               6             1        1      2
8    -2               8             1        2      2
""",
    "path_ends": """
seed point noise       distance
8    2     independent 0.03125
8    3     independent 0.05
8    3     balanced    0.5
5    2     independent 0.25
5    0     independent 0.5
""",
    "descents": """
form    share_of_limit seed time_error
plain   0.5            8    0.1
plain   0.25           5    1
factors 0.5            8    0.2
""",
    "full_weights": """
matrix step rescaled_time
W_VO   20   0.135717
W_VO   40   0.271434
W_VO   60   0.407151
W_VO   10   0.0678585
W_KQ   40   0.271434
W_KQ   60   0.407151
""",
    "full_ratios": """
seed first_rise_limit first_stable_rank_VO first_KQ_over_first_VO
5    0.3              1.11111              2
8    0.5              1.02041              6
9    inf              -                    inf
""",
    "forecast": """
seed log10_init_scale time forecast measured limit
5    -4               0    0        0        0
5    -4               50   0        0        0
5    -4               100  0        1        1
5    -4               150  1        1        1
5    -4               200  1        1        1
5    -2               0    0        0        0
5    -2               20   1        0        0
5    -2               40   1        0        0
5    -2               60   1        0        0
5    -2               80   1        0        0
8    -2               0    0        0        1
8    -2               25   1        0        2
8    -2               50   2        1        2
8    -2               75   2        1        1
8    -2               100  2        1        1
""",
    "problems": """
name  n_seeds d_model drawn n_heads n_layers frames studied
paper 3       2       False -       -        -      False
small 4       3       True  5       2        common True
""",
}
SETUP = """
coarsest: 0.001
decayed: 0.5
duration: 20.0
finest: 1e-06
full_scale: 1e-16
near: 0.05
d_model.paper: 2
n_seeds.paper: 3
n_stages.paper: 1
plain_scale: 1e-32
returned: 0.01
risen: 0.5
d_model.small: 3
n_heads.small: 5
n_seeds.small: 4
n_stages.small: 3
tiny: 1e-4
"""
