//go:build unix

package pgembed

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// place contains the directories, binaries and user of a server.
type place struct {
	dir       string // absolute path
	binDir    string
	socketDir string
	account   account
	made      bool // dir was missing
}

func (p place) clusterDir() string { return filepath.Join(p.dir, "cluster") }
func (p place) logPath() string    { return filepath.Join(p.dir, "postgres.log") }

// newPlace creates the directories around the cluster, and checks that the user of the server can
// enter them.
func newPlace(config *Config, binDir string) (place, error) {
	p := place{binDir: binDir}
	var err error
	if p.account, err = serverAccount(); err != nil {
		return place{}, err
	}
	if err := p.makeDir(config); err != nil {
		return place{}, err
	}
	if err := p.account.openPath(p.dir); err != nil {
		return place{}, err
	}
	if err := p.makeSocketDir(); err != nil {
		return place{}, fmt.Errorf("create the directory of the Unix socket: %w", err)
	}
	return p, nil
}

func (p *place) makeDir(config *Config) (err error) {
	if config.Dir == "" {
		if !config.Ephemeral {
			return errors.New("Config.Dir is empty")
		}
		if p.dir, err = os.MkdirTemp("", "pgembed-"); err != nil {
			return err
		}
		p.made = true
		return p.account.own(p.dir)
	}
	if p.dir, err = filepath.Abs(config.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.dir), 0o755); err != nil {
		return err
	}
	if p.made, err = p.account.makeDir(p.dir); err != nil {
		return err
	}
	stat, err := os.Stat(p.dir)
	if err != nil {
		return err
	}
	// A private directory of root, such as one of os.MkdirTemp, was created for this server, so its
	// owner changes. A directory that others may enter keeps its owner: only its content must
	// belong to the server.
	if stat.Sys().(*syscall.Stat_t).Uid == 0 && stat.Mode()&0o001 == 0 {
		return p.account.own(p.dir)
	}
	return nil
}

// maxSocketDir is the maximum length of the directory of a Unix socket. The path of a socket may
// have 107 bytes on Linux and 103 on macOS, and "/.s.PGSQL.65535" takes 15 of them.
const maxSocketDir = 103 - 15

// plainPath matches the paths that can be used in PostgreSQL's settings and in connection strings
// without quoting.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9/._+-]+$`)

// makeSocketDir creates the directory of the Unix socket. This is run/ or, if that path is too long
// or does not match plainPath, a temporary directory whose name is derived from the server's
// directory.
func (p *place) makeSocketDir() error {
	sum := sha256.Sum256([]byte(p.dir))
	name := "pgembed-" + hex.EncodeToString(sum[:6])
	for _, dir := range []string{filepath.Join(p.dir, "run"), filepath.Join(os.TempDir(), name),
		filepath.Join("/tmp", name)} {
		if len(dir) > maxSocketDir || !plainPath.MatchString(dir) {
			continue
		}
		p.socketDir = dir
		return p.ensureSocketDir()
	}
	return errors.New("the path of every candidate is too long or contains special characters")
}

// ensureSocketDir creates the directory. It accepts an existing one only if no other user can have
// created it: the temporary directory is open to all, and the owner of a socket's directory could
// impersonate the server.
func (p *place) ensureSocketDir() error {
	if _, err := p.account.makeDir(p.socketDir); err != nil {
		return err
	}
	stat, err := os.Lstat(p.socketDir)
	if err != nil {
		return err
	}
	owner := stat.Sys().(*syscall.Stat_t).Uid
	if !stat.IsDir() || owner != p.account.uid && owner != uint32(os.Geteuid()) {
		return fmt.Errorf("%s is not a directory of user %s: remove it", p.socketDir, p.account.name)
	}
	if err := os.Chmod(p.socketDir, 0o700); err != nil {
		return err
	}
	return p.account.own(p.socketDir)
}

// removeSocketDir removes the socket directory if it is outside the data directory.
func (p place) removeSocketDir() error {
	if filepath.Dir(p.socketDir) == p.dir {
		return nil
	}
	if err := os.Remove(p.socketDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// command returns a PostgreSQL program that runs as the user of the server, in a directory that
// this user can enter. It inherits only the environment variables that locate programs, libraries
// and temporary files. PG* variables would change its behavior, and other variables may be secret.
func (p place) command(program string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.binDir, program), arguments...)
	cmd.Dir = p.dir
	cmd.Env = []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, set := os.LookupEnv(name); set {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account.credential()}
	return cmd
}

// maxLogSize is a size in bytes. At startup, a log of at least this size is renamed to
// postgres.log.old.
const maxLogSize = 16 << 20

// rotateLog renames the log if it is too large. It returns the offset in the log at which the next
// run begins.
func (p place) rotateLog() (offset int64, err error) {
	stat, err := os.Stat(p.logPath())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("check the PostgreSQL log: %w", err)
	}
	if stat.Size() < maxLogSize {
		return stat.Size(), nil
	}
	if err := os.Rename(p.logPath(), p.logPath()+".old"); err != nil {
		return 0, fmt.Errorf("rotate the PostgreSQL log: %w", err)
	}
	return 0, nil
}

// logTail returns the text for an error that shows the end of the log, beginning at offset. It
// returns "" if there is none.
func (p place) logTail(offset int64) string {
	log, err := os.Open(p.logPath())
	if err != nil {
		return ""
	}
	defer log.Close()
	const most = 16 << 10
	if end, err := log.Seek(0, io.SeekEnd); err == nil {
		offset = max(offset, end-most)
	}
	text, err := io.ReadAll(io.NewSectionReader(log, offset, most))
	if err != nil || len(text) == 0 {
		return ""
	}
	return "\n" + p.logPath() + ":\n" + lastLines(strings.ToValidUTF8(string(text), "?"))
}
