#!/bin/bash
# One stage, or the whole pipeline, on several nodes of SLURM: sbatch docs/clusters/slurm.sh, in a clone that all nodes see.
#SBATCH --job-name=dynamics
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --mem=64G
#SBATCH --time=12:00:00
# One kind of CPU gives one set of bits; #SBATCH --constraint=... names it where a partition has several.
set -euo pipefail
cd "$SLURM_SUBMIT_DIR"
source .venv/bin/activate
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export LAB_WORKERS=ray:auto RAY_USAGE_STATS_ENABLED=0 TMPDIR=/tmp
srun --export=ALL ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_NNODES" \
    --num-cpus="$SLURM_CPUS_PER_TASK" -- dvc repro "$@"
