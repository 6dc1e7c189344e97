#!/bin/sh
#SBATCH --job-name=testbed
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --output=testbed-%j.log
# Plays a run on all nodes of a job of Slurm's:
#
#	sbatch sbatch.sh persistent_straggler --policy straggler
#
# The program (TESTBED) is at the same place on all nodes, as on a shared file
# system; the record is in run-JOB.
exec "${TESTBED:-testbed}" run "$@" --hosts slurm --out "run-$SLURM_JOB_ID"
