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

// place is where one server lives: its directories, its binaries and its user.
type place struct {
	dir       string // absolute
	binDir    string
	socketDir string
	account   account
	made      bool // dir was missing
}

func (p place) clusterDir() string   { return filepath.Join(p.dir, "cluster") }
func (p place) logPath() string      { return filepath.Join(p.dir, "postgres.log") }
func (p place) passwordPath() string { return filepath.Join(p.dir, "password") }

// newPlace makes the directories that a server needs around its cluster, and checks that its user reaches them.
func newPlace(config *Config, binDir string) (place, error) {
	p := place{binDir: binDir}
	var err error
	if p.account, err = serverAccount(); err != nil {
		return place{}, err
	}
	if err := p.makeDir(config); err != nil {
		return place{}, err
	}
	if err := p.account.openWay(p.dir); err != nil {
		return place{}, err
	}
	if err := p.makeSocketDir(); err != nil {
		return place{}, fmt.Errorf("make the directory of the unix socket: %w", err)
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
	// A private directory of root's, such as os.MkdirTemp makes, was meant for this server: it becomes its user's. One that
	// others may enter stays whose it is, for only what is in it must belong to the server.
	if stat.Sys().(*syscall.Stat_t).Uid == 0 && stat.Mode()&0o001 == 0 {
		return p.account.own(p.dir)
	}
	return nil
}

// The path of a unix socket may have 107 bytes on Linux, 103 on macOS, of which "/.s.PGSQL.65535" takes 15.
const maxSocketDir = 103 - 15

// PostgreSQL and connection strings each give some characters a meaning of their own: such directories get no socket.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9/._+-]+$`)

// makeSocketDir makes the directory of the unix socket: run/ or, where that path is too long or too odd, one in the
// temporary directory that is named after the server's directory, so that it is found again.
func (p *place) makeSocketDir() error {
	sum := sha256.Sum256([]byte(p.dir))
	name := "pgembed-" + hex.EncodeToString(sum[:6])
	for _, dir := range []string{filepath.Join(p.dir, "run"), filepath.Join(os.TempDir(), name), filepath.Join("/tmp", name)} {
		if len(dir) > maxSocketDir || !plainPath.MatchString(dir) {
			continue
		}
		p.socketDir = dir
		return p.ensureSocketDir()
	}
	return errors.New("every candidate has a path that is too long for a socket")
}

// ensureSocketDir makes the directory. One that is there already is trusted only if nobody else can have put it there: the
// temporary directory is open to all, and who owns the directory of a socket can answer in the server's place.
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

// removeSocketDir leaves nothing behind in the temporary directory.
func (p place) removeSocketDir() error {
	if filepath.Dir(p.socketDir) == p.dir {
		return nil
	}
	if err := os.Remove(p.socketDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// command is one of PostgreSQL's programs, run as the server's user, in a directory that this user can enter. It sees
// nothing of this process's environment but what finds libraries and programs: PG* variables would change what it does, and others
// may be secrets.
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

// maxLogSize is the size in bytes at which a start puts the log aside, as postgres.log.old.
const maxLogSize = 16 << 20

// rotateLog tells where in the log the next run begins.
func (p place) rotateLog() (offset int64, err error) {
	stat, err := os.Stat(p.logPath())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look at the PostgreSQL log: %w", err)
	}
	if stat.Size() < maxLogSize {
		return stat.Size(), nil
	}
	if err := os.Rename(p.logPath(), p.logPath()+".old"); err != nil {
		return 0, fmt.Errorf("put the PostgreSQL log aside: %w", err)
	}
	return 0, nil
}

// logTail is what the log says of the run that began at offset, to be put behind an error; "" where it says nothing.
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
