//go:build linux

package test

import (
	"strings"
	"testing"
)

// onNetwork is what docs/examples/torchft does: a lighthouse in a node, managers in
// others. Then it looks at the lighthouse's page until a replica that was silent
// is back.
const onNetwork = `
lighthouse=http://$TESTBED_ADDR_COORDINATOR:29510
"$0" in coordinator "$0" lighthouse --bind $TESTBED_ADDR_COORDINATOR:29510 --min_replicas 2 --heartbeat_timeout_ms 1500 >/dev/null &
for w in W0 W1 W2; do
  eval addr=\$TESTBED_ADDR_$w; node=$(echo $w | tr W w)
  TORCHFT_LIGHTHOUSE=$lighthouse "$0" in $node "$0" manager --bind $addr:29511 --replica_id $node:1 --store_addr $addr:29600 --world_size 1 >/dev/null &
done
"$0" in coordinator /usr/bin/python3 -c '
import sys, time, urllib.request
seen = []
while seen[-3:] != ["here", "silent", "here"] and float(open("/proc/uptime").read().split()[0]) < float(sys.argv[2]):
    time.sleep(0.2)
    try:
        page = urllib.request.urlopen(sys.argv[1] + "/status", timeout=10).read().decode()
    except OSError:
        continue # it has only begun
    at = page.rfind("w2:1")
    if at < 0:
        continue
    now = "silent" if "silent" in page[at:at + 200] else "here"
    if seen[-1:] != [now]:
        seen.append(now)
print(*seen)' $lighthouse $(awk '{print $1 + 90}' /proc/uptime)
`

// TestLighthouseOnANetwork: torchft's programs live on a scenario's network, and
// its injects hit them: who is cut off falls silent, and comes back.
func TestLighthouseOnANetwork(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	needPython(t, "urllib.request")
	before := look(t)
	file := scenario(t, 3, "100mbit", "injects:\n  - {op: Partition, ids: [2], at: 60000}\n  - {op: ClearPartition, at: 80000}\n")
	r := testbed(t, "net", file, "--", "sh", "-c", onNetwork, program)
	if seen := strings.TrimSpace(r.stdout); r.code != 0 || !strings.HasSuffix(seen, "here silent here") {
		t.Errorf("exit code %d, the replica was seen %q\n%s", r.code, seen, r.stderr)
	}
	expectNothing(t, t.Name(), before)
}
