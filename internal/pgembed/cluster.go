//go:build unix

package pgembed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// superuser owns all clusters of this package.
const superuser = "postgres"

var (
	// ErrInUse reports that another live server uses the directory; the error contains its process
	// ID.
	ErrInUse = errors.New("directory is in use")
	// ErrVersion reports that another major version of PostgreSQL created the directory.
	ErrVersion = errors.New("directory belongs to another major version of PostgreSQL")
)

// How long Start waits for a server that is stopping, and for a server that has not begun to stop.
// The server of a killed process ends a moment after the process.
const (
	stoppingWait = 60 * time.Second
	inUseWait    = 500 * time.Millisecond
)

// prepare creates the cluster if it is missing, and returns an error if it cannot be used.
func (p place) prepare(ctx context.Context, major int, unsafe bool) error {
	version, err := os.ReadFile(filepath.Join(p.clusterDir(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return p.initdb(ctx, unsafe)
	}
	if err != nil {
		return fmt.Errorf("read the cluster's version: %w", err)
	}
	if made := strings.TrimSpace(string(version)); made != strconv.Itoa(major) {
		return fmt.Errorf("%w: it was created by PostgreSQL %s, and the binaries in %s are PostgreSQL %d: set "+
			"PG_BINDIR to the "+
			"binaries of version %s, or use another directory", ErrVersion, made, p.binDir, major, made)
	}
	if err := p.waitUnused(ctx); err != nil {
		return err
	}
	if err := p.account.ownTree(p.clusterDir()); err != nil {
		return fmt.Errorf("change the owner of the cluster to user %s: %w", p.account.name, err)
	}
	return nil
}

// initdb creates the cluster in a temporary directory and renames it, so that an incomplete cluster
// is never used.
func (p place) initdb(ctx context.Context, unsafe bool) error {
	draft := p.clusterDir() + ".new"
	if err := os.RemoveAll(draft); err != nil {
		return err
	}
	if _, err := p.account.makeDir(draft); err != nil {
		return err
	}
	arguments := []string{"--pgdata", draft, "--username", superuser, "--encoding=UTF8", "--locale=C",
		"--auth-local=trust", "--auth-host=reject"}
	if unsafe {
		arguments = append(arguments, "--no-sync")
	}
	if _, err := runCommand(ctx, p.command("initdb", arguments...)); err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	return os.Rename(draft, p.clusterDir())
}

// waitUnused returns ErrInUse if a live server uses the cluster, and waits for one that is
// stopping. It ignores the postmaster.pid of a crashed server, because postgres itself checks more
// than the process ID.
func (p place) waitUnused(ctx context.Context) error {
	begin := time.Now()
	for {
		pid, stopping, live, err := p.runningServer()
		if err != nil || !live {
			return err
		}
		limit := inUseWait
		if stopping {
			limit = stoppingWait
		}
		if time.Since(begin) > limit {
			return fmt.Errorf(
				"%w: a PostgreSQL server with process id %d runs in %s: stop it, or use another directory",
				ErrInUse, pid, p.clusterDir())
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the PostgreSQL server with process id %d to stop: %w", pid, err)
		}
	}
}

// runningServer reads postmaster.pid and checks whether its server is alive. The lines are: process
// ID, directory, start time, port, socket directory, listen address, shared memory, status.
func (p place) runningServer() (pid int, stopping, live bool, err error) {
	text, err := os.ReadFile(filepath.Join(p.clusterDir(), "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, false, nil
	}
	if err != nil {
		return 0, false, false, fmt.Errorf("read postmaster.pid: %w", err)
	}
	lines := append(strings.Split(string(text), "\n"), make([]string, 8)...)
	pid, err = strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 0 || !processExists(pid) {
		return 0, false, false, nil
	}
	// The process ID may have been reused, so a server counts as alive if it accepts connections on
	// its socket. A stopping server closes its sockets before it exits.
	stopping = strings.TrimSpace(lines[7]) == "stopping"
	port, socketDir := strings.TrimSpace(lines[3]), strings.TrimSpace(lines[4])
	if stopping || socketDir == "" {
		return pid, stopping, true, nil
	}
	conn, err := net.Dial("unix", filepath.Join(socketDir, ".s.PGSQL."+port))
	if err != nil {
		return pid, false, false, nil
	}
	return pid, false, true, conn.Close()
}

func processExists(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// lockFile takes an exclusive lock. It waits until the current holder has released the lock. The
// lock is released at the latest when the process of its holder ends.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			err = pause(ctx, 20*time.Millisecond)
		}
		if err != nil {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// pause waits for the given time. It returns an error if ctx ends.
func pause(ctx context.Context, wait time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(wait):
		return nil
	}
}
