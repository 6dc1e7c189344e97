// Package wallsteps builds programs whose wall clock is set again and again, in
// all of their processes at once, while the machine's own clock stays as it is.
package wallsteps

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Usual are steps by minutes and by years, in both directions.
var Usual = []time.Duration{0, -30 * time.Minute, 30 * time.Second, 0, 20 * year, -5 * time.Minute, -20 * year, 2 * time.Hour}

const year = 365 * 24 * time.Hour

// Overlay returns the argument of go build that gives a program a wall clock
// that is off by the next one of some times after each period. It writes its
// files to a folder. Times are in whole seconds. The router and the prober of
// links keep the machine's clock, because they compare it with the kernel's
// stamps of packets.
func Overlay(dir string, period time.Duration, off []time.Duration) (string, error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("stepping the wall clock of a program works only on Linux, not on %s", runtime.GOOS)
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("finding the folder of Go: %w", err)
	}
	of := filepath.Join(strings.TrimSpace(string(out)), "src", "runtime")
	var seconds []string
	for _, d := range off {
		seconds = append(seconds, fmt.Sprint(int64(d/time.Second)))
	}
	step := fmt.Sprintf(`
var wallSteps = [...]int64{%s}

func wallStep(mono int64) int64 {
	if len(argslice) > 0 && (argslice[0] == "testbed: router" || argslice[0] == "testbed: prober") {
		return 0
	}
	return wallSteps[uint64(mono/%d)%%%d]
}
`, strings.Join(seconds, ", "), period.Nanoseconds(), len(off))

	replaced := map[string]string{}
	replace := func(name string, pairs ...string) error {
		text, err := os.ReadFile(filepath.Join(of, name))
		if err != nil {
			return err
		}
		for k := 0; k < len(pairs); k += 2 {
			if strings.Count(string(text), pairs[k]) != 1 {
				return fmt.Errorf("%s of %s has no %q to replace", name, runtime.Version(), pairs[k])
			}
		}
		to := filepath.Join(dir, name)
		replaced[filepath.Join(of, name)] = to
		return os.WriteFile(to, []byte(strings.NewReplacer(pairs...).Replace(string(text))), 0o644)
	}
	if runtime.GOARCH == "amd64" {
		err = replace("time_linux_amd64.s", "TEXT time·now<ABIInternal>(SB)", "TEXT runtime·timeNowUnstepped<ABIInternal>(SB)")
		if err == nil {
			err = replace("timeasm.go", "func time_now() (sec int64, nsec int32, mono int64)\n", `func time_now() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = timeNowUnstepped()
	return sec + wallStep(mono), nsec, mono
}

func timeNowUnstepped() (sec int64, nsec int32, mono int64)
`+step)
		}
	} else {
		err = replace("timestub.go", "	return sec, nsec, nanotime()\n}\n", `	mono = nanotime()
	return sec + wallStep(mono), nsec, mono
}
`+step)
	}
	if err != nil {
		return "", fmt.Errorf("patching a copy of Go's runtime so that the wall clock steps: %w", err)
	}
	name := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	if err == nil {
		err = os.WriteFile(name, text, 0o644)
	}
	if err != nil {
		return "", fmt.Errorf("patching a copy of Go's runtime so that the wall clock steps: %w", err)
	}
	return "-overlay=" + name, nil
}
