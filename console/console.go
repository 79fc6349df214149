package console

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var built embed.FS

// Files contains index.html and, under assets/, the files that it loads. engine/rpc fills the
// placeholders of index.html.
var Files = mustSub()

func mustSub() fs.FS {
	files, err := fs.Sub(built, "dist")
	if err != nil {
		panic(err) // the directory is embedded above
	}
	return files
}
