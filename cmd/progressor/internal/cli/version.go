package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
)

// version is set by the linker in releases (-X, with the import path of this package).
var version = ""

// BuildVersion returns the release, or the revision of the build.
func BuildVersion() string {
	if version != "" {
		return version
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := build.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

// VersionCmd prints the version.
type VersionCmd struct{ OutputFlag }

// Help describes the command.
func (VersionCmd) Help() string {
	return `Version prints the version of the binary and of the Go release that built it.

    progressor version`
}

// Run runs the command.
func (c *VersionCmd) Run(a *App) error {
	if c.JSON() {
		return output.PrintJSON(a.Stdout, map[string]string{"version": BuildVersion(), "go": runtime.Version()})
	}
	_, err := fmt.Fprintf(a.Stdout, "progressor %s %s\n", BuildVersion(), runtime.Version())
	return err
}
