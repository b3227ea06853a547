#!/usr/bin/env bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
# Trains one model with all GPUs of several machines: torchrun runs once per machine and starts one process per GPU.
#
#   sbatch slurm-train.sh DATA MODEL [options of nmtalign train]
#   sbatch --nodes=4 --gpus-per-node=0 slurm-train.sh DATA MODEL      # without GPUs: one process per machine
#
# All machines must find DATA at the same place, and MODEL should be in a shared folder. Five minutes before the time is
# over, the training saves its state and ends; submit the same command again and it resumes, with any number of machines.
set -euo pipefail

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) # the machine where the processes meet
gpus=${SLURM_GPUS_ON_NODE:-0}
processes=$((gpus > 0 ? gpus : 1))
export OMP_NUM_THREADS=$((${SLURM_CPUS_PER_TASK:-1} / processes))
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "$processes" --rdzv-backend c10d \
    --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$head:${PORT:-29500}" -m nmtalign train "$1" -o "$2" "${@:3}"
