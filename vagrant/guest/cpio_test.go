//go:build linux

package guest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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

// writeCPIO writes an archive in the one format that the kernel unpacks,
// "newc" (Documentation/driver-api/early-userspace/buffer-format.rst).
func writeCPIO(w io.Writer, entries []entry) error {
	out := bufio.NewWriter(w)
	padding := func(n int) string { return "\x00\x00\x00"[:-n&3] }
	for k, e := range append(entries, entry{name: "TRAILER!!!"}) {
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

// TestCPIO has cpio(1), where there is one, unpack what writeCPIO wrote.
func TestCPIO(t *testing.T) {
	if _, err := exec.LookPath("cpio"); err != nil {
		t.Skip(err)
	}
	want := map[string]string{"d/one": "1", "d/four": "four", "empty": ""}
	var archive bytes.Buffer
	err := writeCPIO(&archive, []entry{
		{name: "d", mode: modeDir},
		{name: "d/one", mode: modeFile, data: []byte("1")},
		{name: "d/four", mode: modeFile, data: []byte("four")},
		{name: "empty", mode: modeFile},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("cpio", "--extract", "--quiet")
	cmd.Dir, cmd.Stdin = dir, &archive
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v\n%s", err, out)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		data, err := os.ReadFile(path)
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
