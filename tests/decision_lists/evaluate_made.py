"""Tables that the stages before `decision_lists.evaluate` write, and their measures worked out by
hand.
"""

import math

from tests.decision_lists.decision_lists_made import task
from tests.stages.made import table

INF, NAN = math.inf, math.nan


def even(name, seq_len, lists, repeats=False, law="zipf"):
    """A task whose sequences are equally likely; the label of a token is the next one."""
    n_tokens = lists.count("/") + 1
    permutation = [*range(1, n_tokens), 0]
    return task(name, seq_len, lists, permutation, [1], repeats, law=law)


# Only lists of two tokens and more have a head: heads-1 has the heads 0 and 1, heads-2 the heads 0,
# 1 and 2.
TASKS = [
    even("joint-sets", 3, "2 0 / 1 / 4 1 2 / 0 3 / 3 4"),
    even("joint-repeats", 2, "1 0 / 1 / 0 1 2", repeats=True),
    even("joint-few", 2, "2 1 0 / 2 1 / 2"),
    even("heads-1", 2, "0 / 1 / 0 2 / 1 3 / 4 / 1 5"),
    even("heads-2", 2, "0 / 1 / 2 / 2 3 / 1 4 / 0 5 / 6"),
    even("uniform", 2, "1 0 / 2 1 / 3 2 / 4 3 / 5 4 / 6 5 / 0 6", law="uniform"),
]
FLOWS = [
    even("run a", 2, "1 0 / 1 / 2 / 3 / 4 / 5"),
    even("run b", 3, "0 / 1 / 2 / 3 / 4 / 5"),
    even("run g", 2, "0 / 1 / 2 / 3 / 4 / 5 / 6 / 7", repeats=True),
    even("run c", 3, "1 2 0 / 1 / 2 / 3 / 4 / 5 / 6 / 7"),
    even("run d", 2, "0 / 1 / 2 / 3 / 4 / 5 / 6 / 7 / 8"),
    even("run e", 3, "0 / 1 / 2 / 3 / 4 / 5 / 6 / 7 / 8") | {"probability": [0.0] + 83 * [1 / 83]},
    even("run f", 4, "0 / 1 / 2 / 3 / 4 / 5 / 6 / 7 / 8"),
]
# The limit of the loss times c² t: n² times a sum over columns, of squares less the square of the
# sum over L.
LIMITS = [4 * (5 - 9 / 6 + 5 * 5 / 6), 9 * 5, NAN, 9 * (14 - 36 / 8 + 7 * 7 / 8), 32, NAN, 128]

MADE = {  # what the stages before write, without columns that play no part
    "flow/theorem": """
task    law        scale bound at_once first_time perfect_at_bound lost regained_time
'run a' zipf       100   0.5   False   0.2        1.0              0    -
'run b' uniform    10    2.0   False   0.1        -                2    0.5
'run g' zipf       20    3.0   False   -          0.0              0    -
'run c' zipf       30    1.0   True    0.3        1.0              0    -
'run d' dirichlet  100   7.0   False   9e-11      -                1    -
'run e' dirichlet  1e3   4e-11 False   1e-11      -                0    -
'run f' log-normal 1     1e-5  False   1e-6       -                1    5e-6
""",
    "flow/paths": """
task     time  loss  accuracy  margin
'run a'  0.0   1.5   0.0       0.0
'run a'  0.05  0.8   0.5       -0.5
'run a'  0.5   0.04  0.5       0.5
'run b'  0.0   2.5   0.0       0.0
'run b'  1e-41 2.375 0.0       0.0   # left out: there are to be two points
'run b'  1e-40 2.25  1.0       0.25  # below what 32 bits hold
'run g'  0.0   3.0   0.0       0.0
'run g'  3.0   0.5   0.0       0.0
'run c'  0.01  1.0   0.0       0.0
'run c'  1.0   0.01  0.0       0.0
'run d'  0.0   3.5   0.0       0.0
'run f'  0.0   3.25  0.0       0.0
""",
    "flow/gamma": """
task  gamma  bound  at_once  first_time
'g 1' 9.0    2.0    False    0.5
'g 1' 1.0    4.0    False    0.2
'g 2' 9.0    2.0    False    -
'g 2' 1.0    3.0    True     1e-9
""",
    "scales/law": """
task    scale  rescaled_time  path_error  attention_to_star  at_once
'law 1' inf    200            -           -                  False
'law 1' 1600   202            0.005       0.3                False
'law 1' 50     260            0.9         0.9                False
'law 1' 100    230            0.06        0.8                False
'law 1' 400    210            0.02        0.4                False
'law 2' inf    300            -           -                  False
'law 2' 50     100            0.8         0.7                False
'law 2' 100    -              0.09        -                  False
'law 2' 400    270            0.03        0.6                False
'law 2' 1600   285            0.001       0.5                False
'law 3' inf    0              -           -                  True
""",
    "flow/repeats": """
task      law     seq_len  first_time  largest_W
repeats-0 uniform 3        16.5        1.5
repeats-1 zipf    4        -           -
repeats-2 zipf    5        0.0         1.25
""",
    "flow/many": """
n_tokens  seq_len  length  bound  first_time  at_once
30        5        2       0.5    0.4         False
30        6        5       2.5    0.5         True
40        5        2       4.0    1.0         False
40        6        3       3.0    -           False
""",
    "descend/alone": """
task    n_steps  bound  margin
'run a' 30       120    0.5
'run b' 12       40     0.0
'run c' 8        80     0.25
""",
    "descend/both": """
task noise       length seq_len preconditions epsilon n_steps earliest margin
d-1  none        1      20      True          0.5     1       50       2.0
d-1  uniform     1      20      True          0.8     6       40       0.0
d-2  none        2      29      False         0.25    9       30       1.0
d-3  uniform     3      38      True          1.25    4       80       -1.0
d-3  adversarial 3      38      True          2.0     3       20       0.125
d-5  none        5      38      False         0.5     7       10       -1.0
""",
    "descend/general": """
task law           preconditions n_steps earliest margin
o-1  'sparse 0.25' True          6       24       0.5
o-2  'sparse 0.25' False         9       30       1.0
o-3  'topics 3'    True          8       16       0.0
""",
    # A run that does not meet the conditions has no measure.
    "follow/followed": """
task noise       followed_steps moved stands_still
d-3  uniform     6              0.25  True
d-1  none        2              0.125 False
d-2  none        9              0.5   True
d-3  adversarial inf            1.0   True
""",
    "follow/draws": """
task seed share   least_share met
d-1  8    0.96875 0.984375    False
d-1  9    1.25    0.984375    True
d-3  8    1.0     0.9375      True
""",
    "descend/courses": """
task noise   step loss step_times_curvature
d-1  none    0    2.0  0.5
d-1  none    1    1.0  0.25
d-1  none    2    0.5  0.125
d-1  uniform 0    3.0  0.5
""",
    # What is last is not what is best, and the step of a certificate is not that of the accuracy.
    "train/starts": """
task start             seed step accuracy certified_all
s-0  'Gaussian, sd 3'  4    35   1.0      False
s-1  'Gaussian, sd 3'  4    15   1.0      True
s-1  reverse           4    10   1.0      False
s-1  reverse           4    30   0.999    False
s-1  small             2    10   0.5      False
s-1  small             2    25   0.75     False
s-1  small             4    10   1.0      False
s-1  small             4    20   1.0      False
s-1  small             4    30   1.0      True
s-1  'Gaussian, sd 10' 4    30   0.25     False
""",
    "train/joint": """
task seed step accuracy certified_all n_tokens start
j-1  5    20   0.5      False         5        small
j-1  5    40   1.0      True          5        small
j-1  1    20   1.0      True          5        small
j-1  1    40   1.0      False         5        small
j-2  5    40   1.0      True          5        small
j-2  1    40   0.5      False         5        small
j-3  5    40   1.0      False         5        small
j-3  1    40   1.0      True          5        small
""",
    "train/alignment": """
task step accuracy cosine centred_cosine argmax_right along_P along_wrong_P argmax_wrong repeats
a-1  1    0.25     0.9    0.95           0.125        0.5     0.125         0.25         False
a-1  8    0.5      0.8    0.85           1.0          0.25    -0.25         0.0          False
a-0  1    0.125    0.3    0.45           0.5          0.5     -0.5          0.75         True
a-0  8    0.75     0.6    0.75           0.875        0.03125 0.25          0.125        True
""",
    "train/minibatch": """
step certified_sets seed n_tokens batch_size
25   True           6    64       256
50   False          6    64       256
25   False          2    64       256
50   True           2    64       256
50   True           4    64       256
""",
    "control/controls": """
task control                           accuracy
c-1  trained                           1.0
c-1  'trained on sequences'            0.9375
c-1  'W transposed'                    0.125
c-1  'softmax over queries'            0.375
c-1  'only rows whose head is present' 0.5
c-1  'the same, on those rows'         0.875
c-1  'W = 0 with the best V'           0.6875
c-0  trained                           0.96875
c-0  'trained on sequences'            1.0
c-0  'W transposed'                    0.25
c-0  'softmax over queries'            0.0625
c-0  'only rows whose head is present' 0.4375
c-0  'the same, on those rows'         0.8125
c-0  'W = 0 with the best V'           0.75
""",
    # Lists with two and three heads, and without; what is not right by the end has no rank.
    "factored/factored": """
of       task log10_init_scale until        first_rise next_rise right singular_values fewest
factored f-1  -2               'next rise'  8          20        40    8,0.5           4
factored f-1  -6               'next rise'  16         48        80    4,2             3
factored f-1  -8               'first rise' 32         -         inf   ,               -
factored f-2  -2               right        4          -         16    9,8,7           2
factored f-2  -6               right        24         -         inf   ,               -
factored f-3  -2               right        -          -         6     3,2,1           3
whole    f-1  -2               'next rise'  1          3         4     8,7             2
whole    f-1  -6               'next rise'  2          5         8     8,0.25          2
permuted f-1  -2               right        1          -         2     8,4,2           3
""",
    "factored/staircases": """
task log10_init_scale time singular_values
f-1  -6               0    0.25,0.125
f-1  -6               1    0.5,0.25
f-1  -6               2    2,1
f-2  -6               0    0.5,0.375
""",
    # Ratios of 1 up to rounding are no violations; what is negative lies below every bin.
    "check/lemma_1": """
derivative bound
6.0        2.0  # 3: 20 log10 is 9.54
3.0        3.0
5.25       5.0  # 1.05: .42
4.75       5.0  # .95: −.45
-4.0       2.0
""",
    "check/lemma_2": """
derivative bound
5.0        4.0   # 1.25: 1.94
500        4.0   # 125: 41.94
14         10.0  # 1.4: 2.92
4.5        3.75  # 1.2: 1.58
""",
    "check/feasible": "length least_n\n3 40\n1 19\n8 69\n2 30",
    "certify/trained": """
task       seed list_entries kept_in_gauge kept_raw
heads-1    0    10           10            13
heads-2    0    9            11            8
joint-sets 7    10           9             21
joint-sets 3    10           26            26
""",
    "certify/lengths": """
time longest task    law     seq_len
0    1       heads-1 zipf    2
30   9       heads-1 zipf    2
0    2       uniform uniform 3
30   2       uniform uniform 3
""",
    # The rank counts what is above an eighth of the largest; early is what begins 1.5 to 20.
    "spectra": """
of       task    law     time singular_values  numerical_rank expected_rank early
initial  heads-1 zipf    5    0,0,0,0          -              -             -
update   heads-1 zipf    1.25 4,0.25,0.25,0    1              2             False
update   heads-1 zipf    5    4,3,2,1          4              2             True
update   heads-1 zipf    30   4,0.75,0.625,0.5 3              2             False
update   heads-2 zipf    1.5  0,0,0,0          0              3             True
update   heads-2 zipf    21   5,0.25,0,0       1              3             False
update   heads-2 zipf    30   5,0.7,0.6,0.1    2              3             False
gaussian heads-2 zipf    40   6,0.5,0.25,0     -              -             -
update   uniform uniform 1.25 7,0.5,0,0        1              6             False
update   uniform uniform 1.5  7,6,5,4          4              6             True
update   uniform uniform 20   7,0.875,0.8,0.7  1              6             True
update   uniform uniform 30   7,6,0.5,0.25     2              6             False
""",
}
MORE = {  # columns that have no place in a line
    "flow/theorem": {"largest_attention": [1.25, 1.5, 1.125, 1.0, 1.375, 1.0625, 1.03125]},
    "descend/both": {"curvature_growth": [5.0, 3.0, 9.0, 4.0, 7.0, 8.0]},
    "factored/factored": {
        "seed": 5,
        "learning_rate": 0.25,
        "n_heads": [2, 2, 2, 3, 3, 0, 2, 2, 2],
        "n_large": [1, 1, 1, 2, 2, 1, 1, 1, 1],
        "shared": [True, True, True, False, False, True, True, True, True],
        "sigma_1": [0.5, 0.5, 0.5, 0.75, 0.75, 1.0, 0.5, 0.5, 0.5],
        "sigma_then": [0.25, 0.125, NAN, 0.5, NAN, 0.5, 0.5, 0.25, 0.5],
        "right_when_cut": [0.5, 0.75, NAN, 1.0, NAN, 0.25, 0.5, 0.5, 0.5],
    },
}
LATE = table("""
task    law  rescaled_time slope loss_times_time
'run a' zipf 5000          -     200
'run g' zipf 1200          0     600
'run c' zipf 900           -1    9
""")
LEMMAS = table("""
bin  size min  lemma cases
-240 1    -2.0 1     5
-1   1    0.95 1     5
0    2    1.0  1     5
9    1    3.0  1     5
1    2    1.2  2     4
2    1    1.4  2     4
41   1    125  2     4
""")
# Every measure and case, its scale behind an @, and the values of its units. The logarithms: a
# tenth of the loss is log10 .05; a slope is over log 16; waits and delays are over decades of the
# scale.
MEASURES = """
time_over_bound.drawn | run a: .4 | run b: .05 | run g: - | run e: .25 | run f: .1
runs_that_lose_it | all: 3
regained_over_bound | run b: .25 | run d: - | run f: .5
largest_attention | run a: 1.25 | run b: 1.5 | run g: 1.125 | run c: 1 | run d: 1.375 \
| run e: 1.0625 | run f: 1.03125
time_over_bound.gamma @ 9 | g 1: .25 | g 2: -
time_over_bound.gamma @ 1 | g 1: .05
time_over_bound.many tokens | L = 30, n = 5, M = 2: .8 | L = 40, n = 5, M = 2: .25 \
| L = 40, n = 6, M = 3: -
runs_right.repeats | repeats-0: 1 | repeats-1: 0 | repeats-2: 1
time_over_bound.descent | run a: .25 | run b: - | run c: .1
conditions_met.descents | d-1, none: 1 | d-1, uniform: 1 | d-2, none: 0 | d-3, uniform: 1 \
| d-3, adversarial: 1 | d-5, none: 0
steps_over_earliest.float64 | d-1, none: .02 | d-1, uniform: - | d-3, uniform: - \
| d-3, adversarial: .15
curvature_growth | d-1, none: 5 | d-1, uniform: 3 | d-3, uniform: 4 | d-3, adversarial: 7
steps_over_earliest.other laws | o-1: .25 | o-3: -
steps_over_earliest.summed apart | d-1, none: .04 | d-3, uniform: .075 | d-3, adversarial: -
steps_over_float64 | d-1, none: 1 | d-3, uniform: 2 | d-3, adversarial: -
moved_over_epsilon | d-1, none: .25 | d-3, uniform: .2 | d-3, adversarial: .5
conditions_met.draws | d-1, draw 8: 0 | d-1, draw 9: 1 | d-3, draw 8: 1
first_loss_share | d-1, draw 8: .96875 | d-1, draw 9: 1.25 | d-3, draw 8: 1
least_first_loss_share | d-1, draw 8: .984375 | d-1, draw 9: .984375 | d-3, draw 8: .9375
lemma_ratio.1 | all: -2
lemma_ratio.2 | all: 1.2
least_n_over_closed_form | M = 3: 2 | M = 1: 0 | M = 8: -3 | M = 2: 1
runs_right.small starts | j-1: .5 | j-2: .5 | j-3: .5
failing_starts | all: 2
runs_right.large starts | all: .5
alignment_growth.P | a-1: .5
alignment_growth.wrong P | a-1: -2.125
alignment_growth.P with repeats | a-0: -.25
alignment_growth.wrong P with repeats | a-0: -.5
alignment_argmax.P | a-0: .875 | a-1: 1
alignment_argmax.wrong P | a-0: .125 | a-1: 0
alignment_cosine | a-0: .6 | a-1: .8
alignment_centred_cosine | a-0: .75 | a-1: .85
runs_right.minibatches | 6: 0 | 2: 1 | 4: 1
control_accuracy.trained | c-0: .96875 | c-1: 1
control_accuracy.trained on sequences | c-0: 1 | c-1: .9375
control_accuracy.W transposed | c-0: .25 | c-1: .125
control_accuracy.over queries | c-0: .0625 | c-1: .375
control_accuracy.rows with a head | c-0: .4375 | c-1: .5
control_accuracy.on rows with a head | c-0: .8125 | c-1: .875
control_accuracy.uniform attention | c-0: .75 | c-1: .6875
rank_error.early | heads-1: 2 | heads-2: 3
rank_error.early uniform | uniform: 5
rank_error.late | heads-1: 1 | heads-2: 1
late_rank | heads-1: 3 | heads-2: 2
kept_over_list_entries.in gauge | heads-1, seed 0: 0 | heads-2, seed 0: 2 | joint-sets, seed 7: -1 \
| joint-sets, seed 3: 16
kept_over_list_entries.raw | heads-1, seed 0: 3 | heads-2, seed 0: -1 | joint-sets, seed 7: 11 \
| joint-sets, seed 3: 16
longest_over_trained | heads-1: 7 | uniform: -1
ends_right @ 1e-2 | f-1, seed 5: 1 | f-2, seed 5: 1 | f-3, seed 5: 1
ends_right @ 1e-6 | f-1, seed 5: 1 | f-2, seed 5: 0
right_over_whole @ 1e-2 | f-1, seed 5: 10
right_over_whole @ 1e-6 | f-1, seed 5: 10
next_over_first @ 1e-2 | f-1, seed 5: 2.5
next_over_first @ 1e-6 | f-1, seed 5: 3
rank_over_heads.apart @ 1e-2 | f-1, seed 5: 0 | f-2, seed 5: 1
rank_over_heads.apart @ 1e-6 | f-1, seed 5: 1
rank_without_heads @ 1e-2 | f-3, seed 5: 3
missing_directions.shared heads @ 1e-2 | f-1, seed 5: 3
missing_directions.shared heads @ 1e-6 | f-1, seed 5: 2
missing_directions.own heads @ 1e-2 | f-2, seed 5: 0
right_when_cut @ 1e-2 | f-1, seed 5: .5
right_when_cut @ 1e-6 | f-1, seed 5: .75
rank_over_heads.whole @ 1e-2 | f-1, seed 5: 1
rank_over_heads.whole @ 1e-6 | f-1, seed 5: 0
rank_over_heads.permuted @ 1e-2 | f-1, seed 5: 2
late_slope | run a: -1.30103 | run g: 0 | run c: -1
late_loss_over_limit | run a: 6.521739 | run c: 0.064
law_time_slope | law 1: -0.9767226 | law 2: -
law_error_slope | law 1: -0.8962406 | law 2: -1.622963
first_wait @ 1e-2 | f-1, seed 5: 0.868589 | f-2, seed 5: 0.6514417
first_wait @ 1e-6 | f-1, seed 5: 0.5790593 | f-2, seed 5: 1.302883
first_wait @ 1e-8 | f-1, seed 5: 0.868589
first_delay.apart | f-1, seed 5: 1.636881
next_delay.apart | f-1, seed 5: 0.3800077
first_delay.whole | f-1, seed 5: 0.05115252
next_delay.whole | f-1, seed 5: 0.05428681
"""
SETUP = """
theorem_runs: 7 | learned_runs: 5 | gammas: 1 to 9 | many_tokens: 30, 40 | lemma_cases: 5
both_runs: 6 | both_met_runs: 4 | both_still_runs: 3 | both_lengths: 1 to 5 | both_seq_len: 20 to 38
general_runs: 3 | general_laws: sparse 0.25, topics 3
noise_draws: 3 | noise_met_draws: 2 | feasible_lengths: 1, 2, 3, 8 | alignment_steps: 8
starts_steps: 35 | joint_runs: 6 | joint_tokens: 5 | minibatch_tokens: 64 | minibatch_size: 256
length_trained: 2 to 3 | factored_heads: 2 to 3 | factored_descents: 4 | factored_right: 3
law_from: 100.0 | early: 1.5 to 20 | rtol: 0.125
"""
