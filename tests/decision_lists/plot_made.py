"""Tables that the figures of the decision lists are drawn from, made by hand."""

TABLES = {
    # d is right at once, f never; e and g are the other runs of a law.
    "theorem": """
task    law       n_tokens seq_len length bound at_once first_time scale largest_attention lost
'run a' zipf      6        2       3      8.0   False   0.02       10    1.5               0
'run b' uniform   7        4       2      3.0   False   0.5        100   1.25              2
'run c' zipf      8        3       2      5.0   False   0.001      30    1.125             0
'run d' zipf      9        3       2      1.0   True    1e-12      20    1.0               0
'run e' dirichlet 9        5       4      2.0   False   0.03       40    1.0625            0
'run f' dirichlet 9        5       4      2.0   False   -          50    1.5               0
'run g' dirichlet 9        5       4      2.0   False   0.2        60    1.5               0
""",
    "paths": """
task    time loss accuracy margin
'run b' 0.0  2.5  0.0      0.0
'run b' 4e-5 2.25 0.125    -1.0  # both are before a ten-thousandth of the time
'run b' 0.25 2.0  0.5      -0.5
'run b' 0.75 1.5  1.0      0.5
'run a' 0.0  1.75 0.0      0.0
'run a' 0.01 1.25 0.25     -2.0
'run a' 0.04 0.75 0.75     2.0
""",
    "late": """
task    law       rescaled_time slope loss_times_time limit
'run a' zipf      100           -1.5  30              20
'run c' zipf      400           -0.75 5               20
'run e' dirichlet 50            -1.0  3               4
""",
    "repeats": """
task  law     length seq_len first_time largest_W attention_to_star
'r 1' uniform 2      5       16         1.5       0.75
'r 2' zipf    3      5       64         2.5       0.875
""",
    "law": """
task    law     seq_len scale rescaled_time path_error attention_to_star at_once
'law z' zipf    5       inf   200           -          -                 False
'law z' zipf    5       100   210           0.02       0.4               False
'law z' zipf    5       5     260           0.3        0.9               False
'law z' zipf    5       20    150           0.1        0.6               False
'law b' uniform 5       5     100           0.25       0.8               False
'law b' uniform 5       inf   80            -          -                 False
'law b' uniform 5       100   90            0.01       0.3               False
'law b' uniform 5       20    60            0.05       0.5               False
'law c' uniform 5       inf   0             -          -                 True
""",
    "feasible": "length least_n closed_form\n3 40 38\n1 19 19",
    "both": """
task noise       law     seq_len length delta n_steps earliest margin
d-1  none        uniform 29      2      0.125 2       50       2.0
d-1  adversarial uniform 29      2      0.125 6       40       0.0
d-2  none        zipf    38      3      0.25  9       30       1.0
""",
    "courses": """
task noise       step loss step_times_curvature
d-1  none        0    2.0  0.5
d-1  none        2    1.0  0.25
d-1  adversarial 0    4.0  0.125
d-1  adversarial 6    3.0  0.75
d-2  none        0    2.5  0.375
d-2  none        9    0.5  0.0625
""",
    "joint": """
task seed step certified_all first_certified_all
j-1  0    40   True          20
j-1  1    40   False         -
j-2  0    40   False         30  # and not at the end
""",
    "lengths": """
time longest task    law     seq_len
0    1       heads-1 zipf    3
1    2       heads-1 zipf    3
8    5       heads-1 zipf    3
1    4       uniform uniform 3
""",
    "starts": """
task start   seed accuracy
s-1  small   4    1.0
s-1  small   2    0.75
s-1  reverse 4    0.25
s-1  reverse 2    0.999
s-1  small   7    1.0
s-1  -P      4    0.5
""",
    "controls": """
task control        accuracy
c-1  trained        1.0
c-1  'W transposed' 0.125
c-0  trained        0.875
c-0  'W transposed' 0.375
""",
    "alignment": """
task step cosine centred_cosine argmax_right along_P least_rate length repeats
a-1  1    0.3    0.45           0.5          0.1     0.25       3      False
a-1  8    0.6    0.75           0.875        0.2     0.25       3      False
a-0  1    0.9    0.95           0.125        0.3     0.125      1      True
a-0  8    0.8    0.85           1.0          0.4     0.125      1      True
a-2  1    0.2    0.25           0.625        0.5     0.125      3      True
a-2  8    0.4    0.65           0.75         0.6     0.125      3      True
""",
    "lemmas": """
bin size min    lemma cases
-3  2    0.75   1     9
12  7    4.25   1     9
5   3    1.8125 2     14
40  11   103.0  2     14
""",
    "factored": """
of       task until        log10_init_scale n_heads sigma_1 first_rise next_rise right fewest rank
factored f-2  right        -1               2       0.5     1          8         6     4      1
factored f-2  right        -2               2       0.5     3          -         12    3      2
factored f-4  right        -2               4       0.25    4          20        16    6      3
factored f-4  'first rise' -4               4       0.25    12         20        18    6      9
factored o-1  right        -2               2       1.0     1          5         inf   8      7
factored n-0  right        -2               0       1.0     1.5        5         6     8      6
whole    f-2  right        -1               2       0.5     0.25       1         3     2      2
permuted f-4  right        -2               4       0.25    1          1         3     2      5
""",
    "staircases": """
task log10_init_scale time singular_values
f-2  -2               0    0.25,0.125
f-2  -2               1    0.5,0.375
f-2  -2               4    2,1
o-1  -2               2    3,1
""",
    "weights": """
query key row place W
0     2   1   1     3.0
0     0   2   2     1.0
0     1   3   0     -0.5
1     1   1   1     2.0
1     0   2   0     -4.0
1     2   3   0     0.25
2     0   1   1     2.5
2     2   2   2     1.5
2     1   3   0     -1.5
""",
    "attention": """
when   sequence query key attention star
before 1        0     0   0.5       3
before 1        0     3   0.5       3
before 1        3     0   0.4       3
before 1        3     3   0.6       3
before 0        1     1   0.3       2
before 0        1     2   0.7       2
before 0        2     1   0.2       1
before 0        2     2   0.8       1
after  1        0     0   0.05      3
after  1        0     3   0.95      3
after  1        3     0   0.1       3
after  1        3     3   0.9       3
after  0        1     1   0.15      2
after  0        1     2   0.85      2
after  0        2     1   0.75      1
after  0        2     2   0.25      1
""",
    "trained": """
task seed list_entries kept_in_gauge kept_raw
t-1  0    10           11            13
t-2  0    24           23            56
t-2  1    16           16            30
""",
    "spectra": """
law     task    time numerical_rank expected_rank early singular_values
zipf    heads-1 0.0  3              1             False 1,0.5,0.25  # a logarithmic axis has no 0
zipf    heads-1 0.5  1              1             False 2,0.125,0.0625
zipf    heads-1 8.0  2              1             False 4,0.75,0.375
uniform uniform 8.0  4              3             False 7,6,5,1e-12
uniform uniform 2.0  3              3             True  3,2.5,2.25,1e-13
zipf    heads-2 1.0  2              4             True  9,8,0.5
zipf    heads-2 4.0  3              4             True  10,8.5,1.25
""",
}
