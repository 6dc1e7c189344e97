// Image writes the container image of Testbed as an OCI layout, for amd64 and
// arm64, without a container engine: busybox, which gives it sh and tar, and the
// program.
//
//	go run ./image -version 0.3.0 -time 1700000000 -in BUILD -out DIR
//
// BUILD has busybox-ARCH and testbed-ARCH. The same files give the same bytes.
// Layout: https://github.com/opencontainers/image-spec/blob/main/image-layout.md
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// applets are the busybox commands that the image has by name.
var applets = []string{"sh", "tar", "cat", "ls", "cp", "mv", "rm", "mkdir", "sleep", "env", "id", "ps", "kill", "head", "tail", "grep"}

func main() {
	log.SetFlags(0)
	log.SetPrefix("image: ")
	version := flag.String("version", "", "the version, for the labels")
	seconds := flag.Int64("time", 0, "when the image was made, in seconds since 1970")
	in := flag.String("in", "", "the folder with busybox-ARCH and testbed-ARCH")
	out := flag.String("out", "", "the folder of the layout, which must not exist")
	flag.Parse()
	if err := write(*in, *out, *version, time.Unix(*seconds, 0).UTC()); err != nil {
		log.Fatal(err)
	}
}

// write makes the layout out of an image for each architecture.
func write(in, out, version string, made time.Time) error {
	if _, err := os.Stat(out); err == nil {
		return fmt.Errorf("%s exists: name another folder", out)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range []string{"amd64", "arm64"} {
		image, err := imageOf(in, arch, version, made)
		if err != nil {
			return fmt.Errorf("the image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	// Tools that copy images take the only entry of a layout, for all architectures.
	outer := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": version}},
	})
	if _, err := layout.Write(out, outer); err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	return nil
}

// imageOf makes the image for one architecture, of two layers.
func imageOf(in, arch, version string, made time.Time) (v1.Image, error) {
	system, err := layer(func(w *tar.Writer) error {
		for _, dir := range []string{"bin", "etc", "root", "usr", "usr/local", "usr/local/bin"} {
			if err := add(w, made, &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil); err != nil {
				return err
			}
		}
		if err := add(w, made, &tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil); err != nil {
			return err
		}
		for _, file := range [][2]string{
			{"etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"},
			{"etc/group", "root:x:0:\nnogroup:x:65534:\n"},
		} {
			if err := add(w, made, &tar.Header{Name: file[0], Mode: 0o644}, []byte(file[1])); err != nil {
				return err
			}
		}
		if err := addFile(w, made, "bin/busybox", filepath.Join(in, "busybox-"+arch)); err != nil {
			return err
		}
		for _, name := range applets {
			if err := add(w, made, &tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777}, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	program, err := layer(func(w *tar.Writer) error {
		return addFile(w, made, "usr/local/bin/testbed", filepath.Join(in, "testbed-"+arch))
	})
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, system, program); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Created = v1.Time{Time: made}
	config.Config = v1.Config{
		Env:        []string{"PATH=/usr/local/bin:/bin", "HOME=/root"},
		WorkingDir: "/root",
		Cmd:        []string{"testbed"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "Testbed",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// layer makes a compressed layer of fill's output.
func layer(fill func(*tar.Writer) error) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := fill(w); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

func add(w *tar.Writer, made time.Time, h *tar.Header, data []byte) error {
	if h.Typeflag == 0 {
		h.Typeflag = tar.TypeReg
	}
	h.Size, h.ModTime, h.Format = int64(len(data)), made, tar.FormatPAX
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

func addFile(w *tar.Writer, made time.Time, name, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return add(w, made, &tar.Header{Name: name, Mode: 0o755}, data)
}
