// Package console contains the built files of the web console. `make console` builds them from the
// TypeScript sources in console/src. They are committed, so neither the program nor its tests need
// Node.
package console

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var built embed.FS

// Files contains index.html, and under assets/ what it loads. engine/rpc fills the placeholders of
// index.html.
var Files = mustSub()

func mustSub() fs.FS {
	files, err := fs.Sub(built, "dist")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return files
}
