#!/bin/sh
# Prints the tables of docs/notes/bench.md for this machine. It takes a quarter
# of an hour; leave the machine alone meanwhile. Arguments are passed on to every
# bench ring. TESTBED is the program, testbed by default.
set -eu
testbed=${TESTBED:-testbed}
lock=${LOCK:-} # a file that other measurements lock as well

measure() {
	if [ -n "$lock" ]; then
		flock "$lock" "$testbed" bench "$@"
	else
		"$testbed" bench "$@"
	fi
}

echo '| links | workers × values | ring | × bound | gloo | ring ÷ gloo | iperf3 | ring ÷ iperf3 | processor, s: ring, router, gloo | memory | error |'
echo '|---|---|---|---|---|---|---|---|---|---|---|'
for rate in 100mbit 400mbit 1gbit unlimited; do
	for values in 4000000 16000000; do
		measure ring --rate $rate --elements $values --against gloo,iperf3 --tcp reno --row "$@"
	done
done
for loss in 0 0.1% 1%; do
	tcp=bbr # reno takes minutes where packets are lost
	[ $loss != 0 ] || tcp=reno
	for values in 4000000 16000000; do
		measure ring --rate 100mbit --one-way-delay 50ms --loss $loss --elements $values --against gloo,iperf3 --tcp $tcp --row "$@"
	done
done
echo
measure kernel --all
