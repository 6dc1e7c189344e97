# Starts a lighthouse in the coordinator's node and a manager in each worker's, and prints
# every second how many members the page calls silent. See docs/torchft.md.
export TORCHFT_LIGHTHOUSE=http://$TESTBED_ADDR_COORDINATOR:29510
testbed in coordinator testbed lighthouse --min_replicas 2 \
  --bind $TESTBED_ADDR_COORDINATOR:29510 --heartbeat_timeout_ms 1500 &
for w in 0 1 2; do
  eval addr=\$TESTBED_ADDR_W$w
  testbed in w$w testbed manager --bind $addr:29511 --replica_id w$w:1 \
    --store_addr $addr:29600 --world_size 1 &
done
while sleep 1; do
  testbed in coordinator curl -s $TORCHFT_LIGHTHOUSE/status | grep -c silent
done
