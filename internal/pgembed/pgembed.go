//go:build unix

// Package pgembed runs a private PostgreSQL from the binaries installed on this machine: for `progressor dev`, which keeps it
// between runs, and for tests, which throw it away. The server belongs to the process that started it and ends with it.
//
// Clients reach it through a unix socket in a directory that only the server's user and root can enter, and are trusted
// there. TCP, where it is asked for, is on 127.0.0.1 only and wants the password that was made with the directory.
package pgembed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// How long a stop waits for each harder way to end the server.
const (
	fastStopWait      = 30 * time.Second
	immediateStopWait = 10 * time.Second
)

// Config says where a server lives and how it runs. The zero value of every field but Dir is usable.
type Config struct {
	// Dir holds everything of the server: cluster/ (PostgreSQL's own files), run/ (its socket), password and postgres.log.
	// It is created with mode 0700 where it is missing, and kept between runs. Empty is allowed for an Ephemeral server only,
	// and means a new directory under os.TempDir().
	Dir string

	// Logger is told of starts and stops. Default: nothing is logged.
	Logger *slog.Logger

	// Port, where it is not 0, makes the server listen on 127.0.0.1:Port too.
	Port int

	// Listen makes the server listen on 127.0.0.1 also where Port is 0, at a free port that Addr tells.
	Listen bool

	// Settings are PostgreSQL settings that win over the package's defaults, such as {"shared_buffers": "64MB"}.
	Settings map[string]string

	// Ephemeral servers are ended without a checkpoint, and Stop removes Dir.
	Ephemeral bool

	// Unsafe turns fsync, synchronous_commit and full_page_writes off: quicker, and a power cut may destroy everything.
	Unsafe bool
}

// Server is a running PostgreSQL. Its methods may be called from several goroutines at once.
type Server struct {
	config Config
	place  place
	major  int

	// change is held by whoever stops or restarts the server, and guards stopped.
	change  sync.Mutex
	stopped bool // the server does not come back
	// state guards what follows; it is never held while something is waited for.
	state      sync.Mutex
	child      *child
	dead       chan struct{}
	restarting bool
}

// Start makes the directory where it is new, starts a server in it and returns when that answers queries. ctx bounds the
// start alone: a server that runs is ended by Stop, or with this process.
//
// It fails where no binaries are found, where another live server uses Dir (ErrInUse), where Dir was made by another major
// version (ErrVersion), where the server's user cannot reach Dir, and where PostgreSQL ends during its start: the error
// then carries the end of its log.
func Start(ctx context.Context, config Config) (*Server, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	binDir, err := FindBinDir()
	if err != nil {
		return nil, err
	}
	place, err := newPlace(&config, binDir)
	if err != nil {
		return nil, fmt.Errorf("prepare PostgreSQL directory %q: %w", config.Dir, err)
	}
	s := &Server{config: config, place: place}
	if err := s.open(ctx); err != nil {
		if place.made && config.Ephemeral {
			err = errors.Join(err, os.RemoveAll(place.dir))
		}
		return nil, fmt.Errorf("start PostgreSQL in %q: %w", place.dir, err)
	}
	return s, nil
}

// open does the part of Start during which nobody else may touch the directory.
func (s *Server) open(ctx context.Context) error {
	unlock, err := lockFile(ctx, filepath.Join(s.place.dir, "start.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	// Asked as the server's user, and in its directory: that proves too that this user can run it there.
	if s.major, err = commandVersion(ctx, s.place.command("postgres", "--version")); err != nil {
		return fmt.Errorf("as user %s: %w", s.place.account.name, err)
	}
	if err := s.place.prepare(ctx, s.major, s.config.Unsafe); err != nil {
		return err
	}
	if s.config.Listen && s.config.Port == 0 {
		if s.config.Port, err = freePort(); err != nil {
			return err
		}
	}
	return s.launch(ctx)
}

// launch starts the postmaster and waits until it answers.
func (s *Server) launch(ctx context.Context) error {
	begin := time.Now()
	logOffset, err := s.place.rotateLog()
	if err != nil {
		return err
	}
	child, err := startChild(s.place, s.arguments(), s.config.Ephemeral)
	if err != nil {
		return err
	}
	if err := waitReady(ctx, s.DSN(), child); err != nil {
		child.end(syscall.SIGQUIT, immediateStopWait)
		return fmt.Errorf("%w%s", err, s.place.logTail(logOffset))
	}
	s.state.Lock()
	s.child = child
	if s.dead == nil || closed(s.dead) {
		s.dead = make(chan struct{})
	}
	s.state.Unlock()
	go s.watch(child)
	s.config.Logger.Info("PostgreSQL started", "dir", s.place.dir, "pid", child.pid(), "version", s.major,
		"took", time.Since(begin).Round(time.Millisecond))
	return nil
}

// watch waits for the end of one child.
func (s *Server) watch(child *child) {
	<-child.done
	if !child.asked.Load() {
		s.config.Logger.Error("PostgreSQL ended by itself", "dir", s.place.dir, "pid", child.pid(), "how", child.how, "log", s.place.logPath())
	}
	s.settle()
}

// settle closes dead where the server has ended and nobody is starting it again.
func (s *Server) settle() {
	s.state.Lock()
	defer s.state.Unlock()
	if !s.restarting && closed(s.child.done) && !closed(s.dead) {
		close(s.dead)
	}
}

// DSN is the connection string of the database postgres, for its superuser, through the unix socket. It stays the same
// over restarts, and over runs on the same Dir.
func (s *Server) DSN() string { return s.DSNFor("postgres") }

// DSNFor is DSN for another database of this server.
func (s *Server) DSNFor(db string) string {
	return fmt.Sprintf("host=%s port=%d user=%s dbname=%s", s.place.socketDir, s.port(), superuser, quoteDSN(db))
}

// Addr is the server's TCP address (127.0.0.1:port), "" where it does not listen.
func (s *Server) Addr() string {
	if s.config.Port == 0 {
		return ""
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.config.Port))
}

// TCPDSNFor is the connection string of a database through TCP, with its password. It fails where the server does not listen.
func (s *Server) TCPDSNFor(db string) (string, error) {
	if s.config.Port == 0 {
		return "", errors.New("the PostgreSQL server does not listen on TCP: set Config.Listen or Config.Port")
	}
	password, err := os.ReadFile(s.place.passwordPath())
	if err != nil {
		return "", fmt.Errorf("read the PostgreSQL password: %w", err)
	}
	return fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s dbname=%s sslmode=disable",
		s.config.Port, superuser, quoteDSN(string(password)), quoteDSN(db)), nil
}

// Dir is the absolute path of Config.Dir.
func (s *Server) Dir() string { return s.place.dir }

// Version is the major version of PostgreSQL, such as 15.
func (s *Server) Version() int { return s.major }

// PID is the process id of the running postmaster, or of the last one that ran.
func (s *Server) PID() int { return s.current().pid() }

// Dead is closed when the server has ended, by Stop or by itself; a Restart does not close it. After a server ended by
// itself, Restart starts it again and Dead returns a new channel.
func (s *Server) Dead() <-chan struct{} {
	s.state.Lock()
	defer s.state.Unlock()
	return s.dead
}

// Stop ends the server: it breaks its connections, writes a checkpoint and waits for the end. When ctx ends, or after 30
// seconds, it goes without the checkpoint (the next start recovers), and that is an error. An Ephemeral server always goes
// without, and its Dir is removed. A second Stop does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.change.Lock()
	defer s.change.Unlock()
	if s.stopped {
		return nil
	}
	mode := syscall.SIGINT
	if s.config.Ephemeral {
		mode = syscall.SIGQUIT
	}
	err := s.halt(ctx, mode)
	s.stopped = true
	s.settle() // the one that watches may not have come to it yet
	err = errors.Join(err, s.place.removeSocketDir())
	if s.config.Ephemeral {
		err = errors.Join(err, os.RemoveAll(s.place.dir))
	}
	if err != nil {
		return fmt.Errorf("stop PostgreSQL in %q: %w", s.place.dir, err)
	}
	s.config.Logger.Info("PostgreSQL stopped", "dir", s.place.dir)
	return nil
}

// Restart ends the server and starts it again, at the same DSN. Mode "fast" breaks the connections and writes a checkpoint;
// mode "immediate" is a crash: the server recovers from its log. A server that ended by itself is only started.
func (s *Server) Restart(ctx context.Context, mode string) error {
	signals := map[string]syscall.Signal{"fast": syscall.SIGINT, "immediate": syscall.SIGQUIT}
	signal, known := signals[mode]
	if !known {
		return fmt.Errorf("restart PostgreSQL: mode %q is neither fast nor immediate", mode)
	}
	s.change.Lock()
	defer s.change.Unlock()
	if s.stopped {
		return errors.New("restart PostgreSQL: it was stopped")
	}
	s.settle()
	s.setRestarting(true)
	err := s.halt(ctx, signal)
	if err == nil {
		err = s.launch(ctx)
	}
	s.setRestarting(false)
	s.settle()
	if err != nil {
		return fmt.Errorf("restart PostgreSQL in %q: %w", s.place.dir, err)
	}
	return nil
}

// halt ends the current child: with mode first, then harder. It is an error where mode was not enough.
func (s *Server) halt(ctx context.Context, mode syscall.Signal) error {
	child := s.current()
	child.asked.Store(true)
	ctx, cancel := context.WithTimeout(ctx, fastStopWait)
	defer cancel()
	child.signal(mode)
	select {
	case <-child.done:
		return nil
	case <-ctx.Done():
	}
	child.end(syscall.SIGQUIT, immediateStopWait)
	return fmt.Errorf("not done in time, ended without a checkpoint: %w", context.Cause(ctx))
}

func (s *Server) current() *child {
	s.state.Lock()
	defer s.state.Unlock()
	return s.child
}

func (s *Server) setRestarting(restarting bool) {
	s.state.Lock()
	defer s.state.Unlock()
	s.restarting = restarting
}

// port is the TCP port, which also names the socket's file; a server without TCP uses PostgreSQL's default there.
func (s *Server) port() int {
	if s.config.Port != 0 {
		return s.config.Port
	}
	return 5432
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
