//go:build linux && !nohost

package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the page of commands anew")

// TestReferenceIsFresh: docs/commands.md says what the commands say now.
func TestReferenceIsFresh(t *testing.T) {
	var want bytes.Buffer
	if err := commandsPage(&want, root()); err != nil {
		t.Fatal(err)
	}
	const page = "../../docs/commands.md"
	if *update {
		if err := os.WriteFile(page, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/commands.md is not what the commands say: run make generate")
	}
}

// TestManPages: every command has one, and no two runs differ.
func TestManPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	a, b := t.TempDir(), t.TempDir()
	for _, dir := range []string{a, b} {
		if err := manPages(root(), dir); err != nil {
			t.Fatal(err)
		}
	}
	pages, err := filepath.Glob(filepath.Join(a, "*.1"))
	if err != nil || len(pages) < 25 {
		t.Fatalf("%d manual pages (%v), want one for each command", len(pages), err)
	}
	for _, page := range pages {
		one, _ := os.ReadFile(page)
		other, _ := os.ReadFile(filepath.Join(b, filepath.Base(page)))
		if !bytes.Equal(one, other) {
			t.Errorf("%s differs from run to run", filepath.Base(page))
		}
		if !strings.Contains(string(one), `"Nov 2023"`) {
			t.Errorf("%s does not bear the month of SOURCE_DATE_EPOCH", filepath.Base(page))
		}
	}
}
