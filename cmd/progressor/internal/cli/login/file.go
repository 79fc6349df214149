package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Login is a login at an issuer.
type Login struct {
	Issuer
	Token   string    `json:"token"`
	Refresh string    `json:"refresh_token,omitempty"`
	Expires time.Time `json:"expires"`
}

// File contains the logins of a user by the URL of the engine. Only the user can read it.
type File string

// Default returns the file in the configuration directory of the user, or "" if there is none.
func Default() File {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return File(filepath.Join(dir, "progressor", "logins.json"))
}

// logins is the content of a file.
type logins struct {
	Logins map[string]Login `json:"logins"`
}

// key returns the name of an engine in the file.
func key(engine string) string { return strings.TrimRight(strings.ToLower(engine), "/") }

// Get returns the login for an engine. ok is false if there is none.
func (f File) Get(engine string) (l Login, ok bool, err error) {
	all, err := f.read()
	l, ok = all.Logins[key(engine)]
	return l, ok, err
}

// Put stores the login for an engine.
func (f File) Put(ctx context.Context, engine string, l Login) error {
	return f.change(ctx, func(all *logins) error {
		all.Logins[key(engine)] = l
		return nil
	})
}

// Remove deletes the login for an engine, and returns it. removed is false if there is none.
func (f File) Remove(ctx context.Context, engine string) (l Login, removed bool, err error) {
	if _, ok, err := f.Get(engine); !ok || err != nil {
		return Login{}, false, err
	}
	err = f.change(ctx, func(all *logins) error {
		l, removed = all.Logins[key(engine)]
		delete(all.Logins, key(engine))
		return nil
	})
	return l, removed, err
}

func (f File) read() (logins, error) {
	all := logins{Logins: map[string]Login{}}
	if f == "" {
		return all, nil
	}
	info, err := os.Stat(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return all, fmt.Errorf("logins: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return all, fmt.Errorf("logins %s: must be readable only by its owner (mode %04o): run chmod 600 %[1]s", f,
			mode)
	}
	text, err := os.ReadFile(string(f))
	if err != nil {
		return all, fmt.Errorf("logins: %w", err)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return all, fmt.Errorf("logins %s: %w: delete the file and log in again", f, err)
	}
	if all.Logins == nil {
		all.Logins = map[string]Login{}
	}
	return all, nil
}

// change reads the file, changes its content and replaces it. Concurrent commands wait for each
// other until ctx ends.
func (f File) change(ctx context.Context, change func(*logins) error) error {
	if f == "" {
		return errors.New("logins: there is no configuration directory: set --login-file")
	}
	if err := os.MkdirAll(filepath.Dir(string(f)), 0o700); err != nil {
		return fmt.Errorf("logins: %w", err)
	}
	lock, err := os.OpenFile(string(f)+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("logins: %w", err)
	}
	defer lock.Close() // also releases the lock
	if err := acquire(ctx, lock); err != nil {
		return fmt.Errorf("lock the logins: %w", err)
	}
	all, err := f.read()
	if err != nil {
		return err
	}
	if err := change(&all); err != nil {
		return err
	}
	return f.write(all)
}

// lockInterval is how often a command tries to lock a file that another one has locked.
const lockInterval = 20 * time.Millisecond

// acquire locks a file.
func acquire(ctx context.Context, file *os.File) error {
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// write replaces the file.
func (f File) write(all logins) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(string(f)), ".logins-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("logins: %w", err)
	}
	defer os.Remove(file.Name()) //nolint:errcheck // the file no longer exists after the rename
	_, err = file.Write(append(text, '\n'))
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), string(f))
	}
	if err != nil {
		return fmt.Errorf("logins: %w", err)
	}
	return nil
}
