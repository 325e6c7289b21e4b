"""Init scales; params and tables hold their log10."""

import math

LOG10 = math.log(10)  # log(init_scale) / log10(init_scale)
