package experiment

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestScratchOfTheDeadIsRemoved, and no other: neither that of who is there, nor
// what has just been made.
func TestScratchOfTheDeadIsRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	alive, lock, err := scratch()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	make := func(age time.Duration, files ...string) string {
		dir, lock, err := scratch()
		if err != nil {
			t.Fatal(err)
		}
		lock.Close() // as the kernel does
		for _, f := range append(files, "init.log") {
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(dir, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dead := make(time.Hour)
	young := make(0)
	if err := os.Chtimes(alive, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	last, lock, err := scratch()
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
	for dir, there := range map[string]bool{alive: true, young: true, last: true, dead: false} {
		if _, err := os.Stat(dir); (err == nil) != there {
			t.Errorf("%s: %v, want it there: %v", dir, err, there)
		}
	}
}
