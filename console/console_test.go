package console_test

import (
	"bytes"
	"compress/gzip"
	"io/fs"
	"regexp"
	"testing"

	"github.com/progressor-engine/progressor/console"
)

// limit is the maximum size in bytes of the files that a browser loads before it shows the first
// page. It is also the maximum size of all files together after compression.
const limit = 600 << 10

func TestSize(t *testing.T) {
	t.Parallel()
	index, err := fs.ReadFile(console.Files, "index.html")
	if err != nil {
		t.Fatal(err)
	}
	first := len(index)
	for _, found := range regexp.MustCompile(`\./(assets/[^"]+)`).FindAllSubmatch(index, -1) {
		content, err := fs.ReadFile(console.Files, string(found[1]))
		if err != nil {
			t.Fatal(err)
		}
		first += len(content)
	}
	if first < limit/10 || first > limit {
		t.Errorf("the first page loads %d bytes, want at most %d", first, limit)
	}
	if all := compressed(t); all > limit {
		t.Errorf("all files have %d bytes when they are compressed, want at most %d", all, limit)
	}
}

// compressed returns the size of all files after gzip.
func compressed(t *testing.T) int {
	t.Helper()
	total := 0
	err := fs.WalkDir(console.Files, ".", func(path string, file fs.DirEntry, err error) error {
		if err != nil || file.IsDir() {
			return err
		}
		content, err := fs.ReadFile(console.Files, path)
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err = w.Write(content); err == nil {
			err = w.Close()
		}
		total += packed.Len()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}
