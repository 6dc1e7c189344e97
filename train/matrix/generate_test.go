package matrix

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"testbed/internal/testenv"
)

// TestAssemblyIsWhatTheGeneratorWrites runs the generator beside the package
// and compares. The generator is a module of its own: its dependencies may have
// to be downloaded.
func TestAssemblyIsWhatTheGeneratorWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: building the generator takes a while")
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "gen"), os.DirFS("gen")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", ".", "-out", "../kernels_amd64.s", "-stubs", "../kernels_amd64.go", "-pkg", "matrix")
	cmd.Dir = filepath.Join(dir, "gen")
	if out, err := cmd.CombinedOutput(); err != nil {
		testenv.Need(t, fmt.Errorf("the generator does not build here: %w\n%s", err, out))
	}
	for _, name := range []string{"kernels_amd64.s", "kernels_amd64.go"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes; run go generate", name)
		}
	}
}
