"""Init scales, which params and tables hold as log10 of them."""

import math

LOG10 = math.log(10)  # log(init_scale) / log10(init_scale)
