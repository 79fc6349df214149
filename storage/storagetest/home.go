//go:build unix

package storagetest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// home is the temporary directory for the server of a test binary. A lock on a file in it is held
// until the process ends, so that later runs can find the directories of killed processes.
type home struct {
	dir  string
	lock *os.File
}

const (
	homePattern = "progressor-test-*"
	homeLock    = "owner.lock"
)

// memoryDir is an in-memory file system on Linux. Cloning a database there takes a tenth of the
// time that it takes on disk. It is used only if it has room for several servers, because it is
// often tiny in containers.
const (
	memoryDir  = "/dev/shm"
	memoryRoom = 2 << 30
)

// homeParent returns the parent directory of new homes.
func homeParent() string {
	var room syscall.Statfs_t
	err := syscall.Statfs(memoryDir, &room)
	//nolint:unconvert // signed on other systems
	if err != nil || uint64(room.Bavail)*uint64(room.Bsize) < memoryRoom {
		return os.TempDir()
	}
	return memoryDir
}

// newHome creates a home. If memoryDir is not writable, it uses the temporary directory.
func newHome() (*home, error) {
	dir, err := os.MkdirTemp(homeParent(), homePattern)
	if err != nil {
		dir, err = os.MkdirTemp("", homePattern)
	}
	if err != nil {
		return nil, fmt.Errorf("create a directory for the server: %w", err)
	}
	// If this process runs as root, the server runs as another user, who needs access.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	lock, err := lockFile(filepath.Join(dir, homeLock), false)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &home{dir: dir, lock: lock}, nil
}

func (h *home) remove() error { return errors.Join(os.RemoveAll(h.dir), h.lock.Close()) }

// sweepHomes removes the directories of killed processes. It skips directories that it cannot
// remove, such as those of other users.
func sweepHomes() {
	var dirs []string
	for _, parent := range []string{memoryDir, os.TempDir()} {
		found, err := filepath.Glob(filepath.Join(parent, homePattern))
		if err != nil {
			continue
		}
		dirs = append(dirs, found...)
	}
	for _, dir := range dirs {
		stat, err := os.Stat(dir)
		// The owner of a new directory may not have locked it yet.
		if err != nil || time.Since(stat.ModTime()) < time.Minute {
			continue
		}
		lock, err := lockFile(filepath.Join(dir, homeLock), false)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}
}

// lockFile takes an exclusive lock, which is held until the file is closed or the process ends. If
// another process holds it, lockFile waits if wait is true, and otherwise fails with EWOULDBLOCK.
func lockFile(path string, wait bool) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err := syscall.Flock(int(file.Fd()), how)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(&fs.PathError{Op: "lock", Path: path, Err: err}, file.Close())
		}
	}
}
