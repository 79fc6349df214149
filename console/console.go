// Package console holds the web console's built files. Their sources are beside it, in TypeScript; `make console` builds them. Neither the
// program nor its tests need Node: what is built is committed.
package console

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var built embed.FS

// Files are index.html and all that it loads, below assets/. index.html has placeholders: see engine/rpc.
var Files = mustSub()

func mustSub() fs.FS {
	files, err := fs.Sub(built, "dist")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return files
}
