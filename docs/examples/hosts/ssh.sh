#!/bin/sh
# Plays a run on this host and others that one can log in to:
#
#	./ssh.sh 10.0.0.1 h1 h2 -- persistent_straggler --policy straggler
#
# The address is where the others reach this host. TESTBED is the program, at the
# same place on all of them.
set -eu
testbed=${TESTBED:-testbed}
address=$1
shift
hosts=
count=1
while [ "$1" != -- ]; do
	hosts="$hosts $1"
	count=$((count + 1))
	shift
done
shift

token=$(openssl rand -hex 16)
index=0
for host in $hosts; do
	index=$((index + 1))
	echo "$token" | ssh "$host" "$testbed host --index $index --count $count --leader $address" &
done
code=0
echo "$token" | "$testbed" run "$@" --hosts "$count@$address" || code=$?
wait # hosts end with their leader
exit $code
