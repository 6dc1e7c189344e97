package wallsteps

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTheClockSteps: a program sees all of the times, while its timers go on.
func TestTheClockSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: building Go's own packages takes a while")
	}
	dir := t.TempDir()
	flag, err := Overlay(dir, 50*time.Millisecond, []time.Duration{0, time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	const program = `package main

import "time"

func main() {
	begin, seen := time.Now(), map[time.Duration]bool{}
	for time.Since(begin) < 200*time.Millisecond {
		seen[time.Now().Round(0).Sub(begin.Round(0)).Round(time.Hour)] = true
		time.Sleep(time.Millisecond)
	}
	println(len(seen), time.Since(begin) < time.Minute)
}
`
	name := filepath.Join(dir, "program.go")
	if err := os.WriteFile(name, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "run", flag, name).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "2 true" {
		t.Errorf("a program with the clock: %v, %s", err, out)
	}
}
