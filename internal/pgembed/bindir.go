//go:build unix

package pgembed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNoBinaries reports that no PostgreSQL server was found.
var ErrNoBinaries = errors.New("no PostgreSQL server binaries found")

// The directories in which distributions install each major version.
var versionedBinDirs = []string{
	"/usr/lib/postgresql/*/bin",               // Debian, Ubuntu
	"/usr/pgsql-*/bin",                        // PGDG packages for Red Hat and derivatives
	"/opt/homebrew/opt/postgresql@*/bin",      // Homebrew on ARM
	"/usr/local/opt/postgresql@*/bin",         // Homebrew on Intel
	"/Library/PostgreSQL/*/bin",               // EDB's installer on macOS
	"/Applications/Postgres.app/*/*/*/bin",    // Postgres.app
	"/usr/local/pgsql/bin", "/usr/lib*/pgsql", // from source; SUSE
}

// FindBinDir returns the directory of postgres and initdb: $PG_BINDIR, then `pg_config --bindir`,
// then the newest version in the directories of distributions. It returns an error if PG_BINDIR
// does not contain them. If it finds no directory, the error wraps ErrNoBinaries and says which
// package to install.
func FindBinDir() (string, error) {
	if dir := os.Getenv("PG_BINDIR"); dir != "" {
		if !holdsServer(dir) {
			return "", fmt.Errorf("%w: PG_BINDIR=%s does not contain postgres and initdb", ErrNoBinaries, dir)
		}
		return filepath.Abs(dir)
	}
	// Client-only packages also contain pg_config: check that there is a server.
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		if dir := strings.TrimSpace(string(out)); holdsServer(dir) {
			return dir, nil
		}
	}
	for _, pattern := range versionedBinDirs {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return "", fmt.Errorf("look for PostgreSQL in %s: %w", pattern, err)
		}
		slices.SortFunc(dirs, func(a, b string) int { return versionIn(b) - versionIn(a) })
		if i := slices.IndexFunc(dirs, holdsServer); i >= 0 {
			return dirs[i], nil
		}
	}
	return "", fmt.Errorf("%w in $PG_BINDIR, pg_config --bindir, /usr/lib/postgresql/*/bin and similar: install them "+
		"(Debian, Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; Alpine: apk add "+
		"postgresql; "+
		"macOS: brew install postgresql@18) or set PG_BINDIR to the directory of postgres and initdb", ErrNoBinaries)
}

func holdsServer(dir string) bool {
	for _, name := range []string{"postgres", "initdb"} {
		stat, err := os.Stat(filepath.Join(dir, name))
		if err != nil || !stat.Mode().IsRegular() || stat.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

var firstNumber = regexp.MustCompile(`\d+`)

// versionIn returns the first number in a path or a version line, or 0 if there is none.
func versionIn(text string) int {
	version, err := strconv.Atoi(firstNumber.FindString(text))
	if err != nil {
		return 0
	}
	return version
}

// Version returns the major version of the PostgreSQL server in binDir, such as 15.
func Version(ctx context.Context, binDir string) (int, error) {
	return commandVersion(ctx, exec.Command(filepath.Join(binDir, "postgres"), "--version"))
}

func commandVersion(ctx context.Context, cmd *exec.Cmd) (int, error) {
	out, err := runCommand(ctx, cmd)
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", cmd, err)
	}
	major := versionIn(out)
	if major == 0 {
		return 0, fmt.Errorf("%s printed %q, which contains no version", cmd, out)
	}
	return major, nil
}
