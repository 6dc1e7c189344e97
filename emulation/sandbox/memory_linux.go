package sandbox

import (
	"os"
	"strconv"
	"strings"
)

// OOMKills is the number of processes of this machine, in all cgroups, that the
// kernel has killed so far because memory ran out (vmstat's oom_kill), 0 if it
// does not report that.
func OOMKills() uint64 {
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0
	}
	return oomKills(string(text))
}

func oomKills(vmstat string) uint64 {
	for line := range strings.Lines(vmstat) {
		if rest, is := strings.CutPrefix(line, "oom_kill "); is {
			n, _ := strconv.ParseUint(strings.TrimSpace(rest), 10, 64) // written by the kernel
			return n
		}
	}
	return 0
}

// OutOfMemory is the message about killed processes while the kernel killed for
// lack of memory.
const OutOfMemory = "the kernel killed processes because memory ran out (oom_kill); add memory to the machine or the cgroup, or use fewer workers or parameters"
