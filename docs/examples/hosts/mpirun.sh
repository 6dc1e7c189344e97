#!/bin/sh
# Plays a run on the hosts on which MPI starts it, once on each; rank 0 leads:
#
#	(umask 077 && openssl rand -hex 16 > token)
#	mpirun -N 1 --hostfile hosts ./mpirun.sh 10.0.0.1 token persistent_straggler --policy straggler
#
# The address is where the others reach the first host. Script, token and program
# (TESTBED) are at the same place on all of them, as on a shared file system.
set -eu
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:?this is not started by mpirun}}
count=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}
testbed=${TESTBED:-testbed}
address=$1
token=$2
shift 2

if [ "$rank" -eq 0 ]; then
	exec "$testbed" run "$@" --hosts "$count@$address" < "$token"
fi
exec "$testbed" host --index "$rank" --count "$count" --leader "$address" < "$token"
