//go:build unix

package storagetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/internal/pgembed"
	"github.com/progressor-engine/progressor/migrations"
	"github.com/progressor-engine/progressor/storage"
)

// templateName is the database that is cloned for each test.
const templateName = "progressor_template"

// unusedWait is how long an unused cached cluster is kept.
const unusedWait = 7 * 24 * time.Hour

// startServer starts a server with the template, from the cache or, if that fails, without it.
func startServer(ctx context.Context) (*home, *pgembed.Server, error) {
	sweepHomes()
	home, err := newHome()
	if err != nil {
		return nil, nil, err
	}
	server, err := startCached(ctx, home.dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "storagetest: cannot use the cached template, starting a new server:", err)
		server, err = startFresh(ctx, home.dir)
	}
	if err != nil {
		return nil, nil, errors.Join(err, home.remove())
	}
	return home, server, nil
}

// startCached starts a server on a copy of the cached cluster. If there is no cached cluster,
// startCached creates one first.
func startCached(ctx context.Context, dir string) (*pgembed.Server, error) {
	key, err := cacheKey(ctx)
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	entry := filepath.Join(cache, key)
	if err := ensureEntry(ctx, entry); err != nil {
		return nil, err
	}
	place := filepath.Join(dir, "server")
	if err := copyServer(ctx, entry, place); err != nil {
		return nil, err
	}
	server, err := pgembed.Start(ctx, serverConfig(dir, true))
	if err != nil {
		// A copy that does not start would also fail in the next run.
		return nil, errors.Join(err, os.RemoveAll(entry), os.RemoveAll(place))
	}
	return server, nil
}

func startFresh(ctx context.Context, dir string) (*pgembed.Server, error) {
	server, err := pgembed.Start(ctx, serverConfig(dir, true))
	if err != nil {
		return nil, err
	}
	if err := makeTemplate(ctx, server); err != nil {
		return nil, errors.Join(err, server.Stop(ctx))
	}
	return server, nil
}

// serverConfig configures a server in a directory of a home.
func serverConfig(home string, ephemeral bool) pgembed.Config {
	return pgembed.Config{
		Dir: filepath.Join(home, "server"), Ephemeral: ephemeral, Unsafe: true, Preload: buildPreload(home),
		Settings: map[string]string{
			"shared_buffers":  "64MB",
			"max_connections": "200",
			"min_wal_size":    "64MB",
			"max_wal_size":    "256MB",
			// With many databases, a shorter interval would start so many workers that they need
			// much CPU time.
			"autovacuum_naptime": "1min",
		},
	}
}

// makeTemplate creates the database that is cloned. Afterwards it allows no connections, because a
// connection would block the clones.
func makeTemplate(ctx context.Context, server *pgembed.Server) error {
	if err := execute(server.DSN(), "CREATE DATABASE "+templateName); err != nil {
		return fmt.Errorf("create the template database: %w", err)
	}
	if err := storage.Migrate(ctx, server.DSNFor(templateName)); err != nil {
		return fmt.Errorf("migrate the template database: %w", err)
	}
	if err := execute(server.DSN(),
		"ALTER DATABASE "+templateName+" ALLOW_CONNECTIONS false IS_TEMPLATE true"); err != nil {
		return fmt.Errorf("close the template database: %w", err)
	}
	return nil
}

// ensureEntry creates a cached cluster with the template if it is missing. If several test binaries
// start at once, one creates it and the others wait.
func ensureEntry(ctx context.Context, entry string) error {
	lock, err := lockFile(entry+".lock", true)
	if err != nil {
		return err
	}
	defer lock.Close()
	now := time.Now()
	if err := os.Chtimes(entry, now, now); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	home, err := newHome()
	if err != nil {
		return err
	}
	return errors.Join(makeEntry(ctx, entry, home.dir), home.remove())
}

func makeEntry(ctx context.Context, entry, dir string) error {
	place := filepath.Join(dir, "server")
	server, err := pgembed.Start(ctx, serverConfig(dir, false))
	if err != nil {
		return err
	}
	if err := errors.Join(makeTemplate(ctx, server), server.Stop(ctx)); err != nil {
		return err
	}
	sweepCache(filepath.Dir(entry))
	draft := entry + ".new"
	if err := os.RemoveAll(draft); err != nil {
		return err
	}
	if err := copyServer(ctx, place, draft); err != nil {
		return err
	}
	return os.Rename(draft, entry)
}

// copyServer copies the files from which a stopped server is started. cp shares blocks if the file
// system supports it.
func copyServer(ctx context.Context, from, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "cp", "-a", filepath.Join(from, "cluster"), to)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, out)
	}
	return nil
}

// cacheKey returns a key that depends on PostgreSQL's major version and on the migrations.
func cacheKey(ctx context.Context) (string, error) {
	binDir, err := pgembed.FindBinDir()
	if err != nil {
		return "", err
	}
	version, err := pgembed.Version(ctx, binDir)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	err = fs.WalkDir(migrations.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrations.FS, path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash the migrations: %w", err)
	}
	return fmt.Sprintf("pg%d-%s", version, hex.EncodeToString(sum.Sum(nil)[:8])), nil
}

// cacheDir returns a directory of the current user. The cluster can be used to run code, so other
// users must not be able to write to it.
func cacheDir() (string, error) {
	parent, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(parent, "progressor", "storagetest")
	return dir, os.MkdirAll(dir, 0o700)
}

// sweepCache removes clusters of other migrations that were not used for unusedWait. It ignores
// errors.
func sweepCache(cache string) {
	entries, err := os.ReadDir(cache)
	if err != nil {
		return
	}
	for _, entry := range entries {
		stat, err := entry.Info()
		if err == nil && strings.HasPrefix(entry.Name(), "pg") && time.Since(stat.ModTime()) > unusedWait {
			_ = os.RemoveAll(filepath.Join(cache, entry.Name()))
		}
	}
}
