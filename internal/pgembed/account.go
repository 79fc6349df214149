//go:build unix

package pgembed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// account is the user of the server. PostgreSQL refuses to run as root, so root switches to another
// user.
type account struct {
	name     string
	uid, gid uint32
	dropped  bool // this process is root, but the server is not
}

func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{name: "uid " + strconv.Itoa(os.Geteuid()), uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())},
			nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
			continue
		}
		if err != nil {
			return account{}, fmt.Errorf("look up user %s: %w", name, err)
		}
		uid, err := strconv.ParseUint(found.Uid, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("uid of user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(found.Gid, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("gid of user %s: %w", name, err)
		}
		return account{name: name, uid: uint32(uid), gid: uint32(gid), dropped: true}, nil
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and neither user postgres nor user nobody exists")
}

// credential returns nil if the server runs as the user of this process.
func (a account) credential() *syscall.Credential {
	if !a.dropped {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

// makeDir creates dir with mode 0700 for the account. It reports whether dir was missing.
func (a account) makeDir(dir string) (made bool, err error) {
	err = os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, a.own(dir)
}

// own changes the owner of a path to the account.
func (a account) own(path string) error {
	if !a.dropped {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// ownTree changes the owner of dir and everything below it to the account, unless the account owns
// dir already or this process is not root. A directory that another user's run created, or that was
// restored from a backup, changes as a whole.
func (a account) ownTree(dir string) error {
	stat, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !a.dropped || stat.Sys().(*syscall.Stat_t).Uid == a.uid {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return a.own(path)
	})
}

// openPath ensures that the account can enter dir. It opens only private directories of root inside
// the temporary directory, such as those that mktemp creates. Others may be the home of root.
func (a account) openPath(dir string) error {
	for {
		barrier, err := a.barrier(dir)
		if err != nil || barrier == "" {
			return err
		}
		opened, err := a.openTemporary(barrier)
		if err != nil {
			return err
		}
		if !opened {
			return fmt.Errorf(
				"PostgreSQL runs as user %[1]s here (it refuses to run as root), and that user may not enter %[2]s: "+
					"choose a directory elsewhere, such as /var/lib/progressor, or allow it with: chgrp %[3]d "+
					"%[2]s && "+
					"chmod g+x %[2]s",
				a.name, barrier, a.gid)
		}
	}
}

// openTemporary lets the group of the account enter dir if dir is a private directory of root
// inside the temporary directory. It reports whether it did so.
func (a account) openTemporary(dir string) (opened bool, err error) {
	temporary, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return false, err
	}
	stat, err := os.Stat(dir)
	if err != nil {
		return false, err
	}
	inside := strings.HasPrefix(dir, temporary+string(filepath.Separator))
	if !inside || stat.Sys().(*syscall.Stat_t).Uid != 0 || stat.Mode()&0o077 != 0 {
		return false, nil
	}
	if err := os.Chown(dir, -1, int(a.gid)); err != nil {
		return false, err
	}
	return true, os.Chmod(dir, stat.Mode()|0o010)
}

// barrier returns the first directory on the path to dir that the account cannot enter, or "" if
// the mode bits allow it to enter all of them. Only a switched account can be blocked, because it
// did not create the directories.
func (a account) barrier(dir string) (string, error) {
	if !a.dropped {
		return "", nil
	}
	// Follow symbolic links: the real path counts.
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	if parent := filepath.Dir(dir); parent != dir {
		if found, err := a.barrier(parent); found != "" || err != nil {
			return found, err
		}
	}
	stat, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	owner := stat.Sys().(*syscall.Stat_t)
	bit := fs.FileMode(0o001)
	switch {
	case owner.Uid == a.uid:
		bit = 0o100
	case owner.Gid == a.gid:
		bit = 0o010
	}
	if stat.Mode()&bit == 0 {
		return dir, nil
	}
	return "", nil
}
