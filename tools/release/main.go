// Command release describes and packs the binaries of a release.
//
//	release VERSION COMMIT DIR
//
// DIR contains a binary progressor-OS-ARCH for each platform. The command writes the bill of
// materials of each binary to DIR/progressor-OS-ARCH.cdx.json. It writes the container image with
// the binaries for Linux to DIR/image (an OCI image layout), and the digest of the image to
// DIR/image.digest. The same binaries always produce the same files.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: release VERSION COMMIT DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// write writes the files of a release.
func write(version, commit, dir string) error {
	binaries, err := filepath.Glob(filepath.Join(dir, "progressor-*"))
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	images := 0
	for _, path := range binaries {
		if err := writeBill(path, version); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		arch, ok := strings.CutPrefix(filepath.Base(path), "progressor-linux-")
		if !ok {
			continue
		}
		img, err := image(path, arch, version, commit)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
		images++
	}
	if images == 0 {
		return errors.New("there is no progressor-linux-ARCH in " + dir)
	}
	path, err := layout.Write(filepath.Join(dir, "image"), empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "image.digest"), []byte(digest.String()+"\n"), 0o644)
}

// image returns the image for one architecture. It contains only the binary, and needs no base
// image.
func image(path, arch, version, commit string) (v1.Image, error) {
	layer, err := layerOf(path)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: time.Unix(0, 0).UTC()},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:         "65532:65532",
			Entrypoint:   []string{"/progressor"},
			Cmd:          []string{"serve"},
			ExposedPorts: map[string]struct{}{"8080/tcp": {}},
			// A stop takes up to 30 s (engine.drain_timeout): set a stop timeout of 45 s.
			StopSignal: "SIGTERM",
			Labels: map[string]string{
				"org.opencontainers.image.title":    "progressor",
				"org.opencontainers.image.version":  version,
				"org.opencontainers.image.revision": commit,
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, layer)
}

// layerOf returns the layer with the binary at path as /progressor.
func layerOf(path string) (v1.Layer, error) {
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "progressor", Mode: 0o755, Size: int64(len(binary)),
		ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}); err != nil {
		return nil, err
	}
	if _, err := w.Write(binary); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}
