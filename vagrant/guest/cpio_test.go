//go:build linux

package guest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/internal/testenv"
)

// Modes as an archive holds them (inode(7)).
const (
	modeDir    = 0o040755
	modeFile   = 0o100755
	modeDevice = 0o020600 // a character device
)

// entry is one member of an archive.
type entry struct {
	name         string
	mode         uint32
	data         []byte
	major, minor uint32 // of a device
}

// archive is a file system in the making: directories come before what is in
// them.
type archive []entry

// dir appends a directory and those above it, unless they are there.
func (a *archive) dir(name string) {
	if name == "." || slices.ContainsFunc(*a, func(e entry) bool { return e.name == name }) {
		return
	}
	a.dir(path.Dir(name))
	*a = append(*a, entry{name: name, mode: modeDir})
}

func (a *archive) file(name string, data []byte) {
	a.dir(path.Dir(name))
	*a = append(*a, entry{name: name, mode: modeFile, data: data})
}

func (a *archive) device(name string, major, minor uint32) {
	a.dir(path.Dir(name))
	*a = append(*a, entry{name: name, mode: modeDevice, major: major, minor: minor})
}

// write writes the archive in the one format that the kernel unpacks, "newc"
// (Documentation/driver-api/early-userspace/buffer-format.rst).
func (a archive) write(w io.Writer) error {
	out := bufio.NewWriter(w)
	padding := func(n int) string { return "\x00\x00\x00"[:-n&3] }
	for k, e := range append(a, entry{name: "TRAILER!!!"}) {
		head := "070701"
		for _, field := range []uint32{
			uint32(k + 1), e.mode, 0, 0, 1, 0, uint32(len(e.data)), // inode, mode, owners, links, time, size
			0, 0, e.major, e.minor, uint32(len(e.name) + 1), 0, // devices, size of the name, no checksum
		} {
			head += fmt.Sprintf("%08x", field)
		}
		head += e.name + "\x00"
		_, _ = out.WriteString(head + padding(len(head))) // the first error stays: see Flush
		_, _ = out.Write(e.data)
		_, _ = out.WriteString(padding(len(e.data)))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

// TestCPIO has cpio(1), where there is one, unpack an archive.
func TestCPIO(t *testing.T) {
	_, err := exec.LookPath("cpio")
	testenv.Need(t, err)
	want := map[string]string{"a/b/one": "1", "a/four": "four", "empty": ""}
	var a archive
	for _, name := range slices.Sorted(maps.Keys(want)) {
		a.file(name, []byte(want[name]))
	}
	var packed bytes.Buffer
	if err := a.write(&packed); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("cpio", "--extract", "--quiet")
	cmd.Dir, cmd.Stdin = dir, &packed
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v\n%s", err, out)
	}
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(file, dir+"/")
		data, err := os.ReadFile(file)
		if text, ok := want[name]; !ok || text != string(data) {
			t.Errorf("%s holds %q, want %q", name, data, text)
		}
		delete(want, name)
		return err
	})
	if err != nil || len(want) > 0 {
		t.Errorf("not unpacked: %v %v", want, err)
	}
}
