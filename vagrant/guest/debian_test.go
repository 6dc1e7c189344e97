//go:build linux

package guest

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// kernelMeta depends on the newest of Debian's small kernels: made for
// virtual machines, with netem, and all that the guest boots from built in.
const kernelMeta = "linux-image-cloud-amd64"

// imagePattern matches the directories of unpacked kernels.
const imagePattern = "linux-image-*"

// modules are what links need; what these depend on comes with them. Those
// that a kernel has built in are no files and need no loading.
var modules = []string{"veth", "bridge", "tun", "af_packet", "sch_htb", "sch_hfsc", "sch_tbf", "sch_netem", "sch_ingress", "cls_u32", "act_mirred", "ifb"}

// image is an unpacked kernel package.
type image struct {
	vmlinuz string
	modules map[string]string // file by name
}

// debianKernel finds the newest of Debian's kernels in the user's cache, or
// has apt download it. The package is unpacked, never installed.
func debianKernel(ctx context.Context) (image, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return image{}, fmt.Errorf("looking for the cache directory: %w", err)
	}
	cache = filepath.Join(cache, "testbed", "kernel")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return image{}, fmt.Errorf("making the cache directory: %w", err)
	}
	name, err := newestKernel(ctx)
	if err == nil {
		dir := filepath.Join(cache, name)
		if err = fetchKernel(ctx, name, dir); err == nil {
			return openImage(dir)
		}
	}
	// Without apt's lists or a network an older kernel is as good.
	if cached, _ := filepath.Glob(filepath.Join(cache, imagePattern)); len(cached) > 0 {
		return openImage(cached[len(cached)-1])
	}
	return image{}, err
}

// newestKernel asks apt for the name of the newest kernel's package.
func newestKernel(ctx context.Context) (string, error) {
	out, err := output(ctx, "", "apt-cache", "depends", "--important", kernelMeta)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`Depends: (linux-image-\S+)`).FindStringSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("apt knows no %s: this needs Debian's package lists (apt-get update)", kernelMeta)
	}
	return found[1], nil
}

// fetchKernel downloads and unpacks the package into dir, unless it is there.
// It renames a finished directory into place: tests may run at the same time.
func fetchKernel(ctx context.Context, name, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return fmt.Errorf("making room for the kernel: %w", err)
	}
	defer os.RemoveAll(work)
	if _, err := output(ctx, work, "apt-get", "download", name); err != nil {
		return err
	}
	packages, _ := filepath.Glob(filepath.Join(work, name+"_*.deb")) // the pattern is right
	if len(packages) != 1 {
		return fmt.Errorf("apt-get download %s left %d packages", name, len(packages))
	}
	root := filepath.Join(work, "root")
	if _, err := output(ctx, work, "dpkg-deb", "--extract", packages[0], root); err != nil {
		return err
	}
	older, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), imagePattern))
	if err := os.Rename(root, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("keeping the kernel: %w", err)
	}
	for _, old := range older {
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("removing an older kernel: %w", err)
		}
	}
	return nil
}

// output runs a program in dir and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

func openImage(dir string) (image, error) {
	im := image{modules: map[string]string{}}
	if found, _ := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*")); len(found) == 1 {
		im.vmlinuz = found[0]
	} else {
		return image{}, fmt.Errorf("%s holds %d kernels, want 1", dir, len(found))
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		// Since Debian 13 modules are compressed: sch_netem.ko.xz.
		if name, _, ok := strings.Cut(filepath.Base(path), ".ko"); ok {
			im.modules[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	if err != nil {
		return image{}, fmt.Errorf("looking for modules: %w", err)
	}
	return im, nil
}

// load packs a module behind those that it depends on, and numbers them in
// this order, in which the guest can load them.
func (im image) load(ctx context.Context, a *archive, name string) error {
	path, ok := im.modules[name]
	if !ok {
		return nil // built in
	}
	if slices.ContainsFunc(*a, func(e entry) bool { return strings.HasSuffix(e.name, "-"+name+".ko") }) {
		return nil
	}
	data, err := os.ReadFile(path)
	if strings.HasSuffix(path, ".xz") && err == nil {
		var text string
		text, err = output(ctx, "", "xz", "--decompress", "--stdout", path)
		data = []byte(text)
	}
	if err != nil {
		return fmt.Errorf("reading the module %s: %w", name, err)
	}
	needs, err := dependencies(data)
	if err != nil {
		return fmt.Errorf("reading the module %s: %w", name, err)
	}
	for _, n := range needs {
		if err := im.load(ctx, a, n); err != nil {
			return err
		}
	}
	a.file(fmt.Sprintf("modules/%04d-%s.ko", len(*a), name), data)
	return nil
}

// dependencies reads the names that modprobe would load first.
func dependencies(module []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		if names, ok := strings.CutPrefix(field, "depends="); ok && names != "" {
			return strings.Split(strings.ReplaceAll(names, "-", "_"), ","), nil
		}
	}
	return nil, nil
}
