#!/usr/bin/env bash
# optax clips float16 gradients to nothing where their squares add up to more than 65504.
#
# Versions: optax 0.2.8, jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6.
#
# clip_by_global_norm(1) scales gradients down to norm 1 where they are longer,
# normalize_by_update_norm() always, adaptive_grad_clip(0.01) to 1% of the norm of the weights.
#
# Expected: 90,000 gradients of 1, of norm 300, which float16 can hold, come out with norm 1, 1
# and 3 (of weights of 1), in float16 as in bfloat16 and float32, to the digits of the type.
# Seen: bfloat16 and float32 do so. In float16 the first two give zero for every entry, and the
# third gives NaN. The norm is the root of a sum that is kept in float16, so that it is infinite
# from 256 on, and the gradients are divided by it. At the other end, 4096 gradients of 0.0001,
# of norm 0.0064, have a global norm of 0, so that normalize_by_update_norm() makes infinities
# of them. There is neither an error nor a warning.
#
# Why it matters: half precision needs a loss that is scaled up, and with it gradients are this
# long. The steps that clipping should shorten are left out, and the weights stand still: one
# sees a plateau, and a spectrum that does not change. The other way to clip gives NaN.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6

cat > try.py <<'PY'
import jax.numpy as jnp
import numpy as np
import optax


def norm_after(rule, gradients, weights):
    """The norm of what a rule makes of the gradients, added up in double precision."""
    updates, _ = rule.update(gradients, rule.init(weights), weights)
    return np.linalg.norm(np.asarray(updates, dtype=np.float64))


for kind in (jnp.float16, jnp.bfloat16, jnp.float32):
    long = jnp.ones(90_000, kind)
    short = jnp.full(4096, 1e-4, kind)
    weights = jnp.ones(90_000, kind)
    clipped = norm_after(optax.clip_by_global_norm(1.0), long, weights)
    unit = norm_after(optax.normalize_by_update_norm(), long, weights)
    adaptive = norm_after(optax.adaptive_grad_clip(0.01), long, weights)
    short_unit = norm_after(optax.normalize_by_update_norm(), short, short)
    print(f"{np.dtype(kind).name}: norm {optax.global_norm(long)}, clipped {clipped:.3f},")
    print(f"  normalised {unit:.3f}, adaptive {adaptive:.3f}; short {optax.global_norm(short):.4f}")
    if kind is jnp.float16:
        assert clipped == 0 and unit == 0 and np.isnan(adaptive)
        assert np.isinf(short_unit) and optax.global_norm(short) == 0
    else:
        assert abs(clipped - 1) < 0.01 and abs(unit - 1) < 0.01 and abs(adaptive - 3) < 0.03
        assert abs(short_unit - 1) < 0.01
PY
./env/bin/python try.py
echo "as seen before"
