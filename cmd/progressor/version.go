package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker in releases (-X main.version=1.2.3).
var version = ""

// buildVersion returns the release, or the revision of the build.
func buildVersion() string {
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

type versionCmd struct{ outputFlag }

func (versionCmd) Help() string {
	return `Version prints the version of the binary and of the Go release that built it.

    progressor version`
}

func (c *versionCmd) Run(a *app) error {
	if c.json() {
		return printJSON(a.Stdout, map[string]string{"version": buildVersion(), "go": runtime.Version()})
	}
	_, err := fmt.Fprintf(a.Stdout, "progressor %s %s\n", buildVersion(), runtime.Version())
	return err
}
