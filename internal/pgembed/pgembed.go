//go:build unix

package pgembed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// How long Stop waits before it uses the next shutdown mode.
const (
	fastStopWait      = 30 * time.Second
	immediateStopWait = 10 * time.Second
)

// Config configures a server. Dir is required, other fields may be zero.
type Config struct {
	// Dir contains all files of the server: cluster/ (PostgreSQL's own files), run/ (its socket)
	// and postgres.log. It is created with mode 0700 if it is missing, and kept between runs. It
	// may be empty only for an Ephemeral server, which then uses a new directory under
	// os.TempDir().
	Dir string

	// Logger logs starts and stops. Default: nothing is logged.
	Logger *slog.Logger

	// Settings are PostgreSQL settings that override the defaults of this package, such as
	// {"shared_buffers": "64MB"}.
	Settings map[string]string

	// Ephemeral servers stop without a checkpoint, and Stop removes Dir.
	Ephemeral bool

	// Unsafe turns fsync, synchronous_commit and full_page_writes off: faster, but a power failure
	// may destroy the cluster.
	Unsafe bool

	// Preload is the path of a library that the server's processes load first (LD_PRELOAD).
	// Default: none.
	Preload string
}

// Server is a running PostgreSQL. Its methods are safe for concurrent use.
type Server struct {
	config Config
	place  place
	major  int

	// change serializes stops and restarts, and guards stopped.
	change  sync.Mutex
	stopped bool // the server cannot be restarted
	// state guards the following fields; it is never held during a wait.
	state      sync.Mutex
	child      *child
	dead       chan struct{}
	restarting bool
}

// Start creates the directory if needed, starts a server in it, and returns when the server answers
// queries. ctx limits only the start: the server runs until Stop, or until this process ends.
//
// Start returns an error if no binaries are found, if another live server uses Dir (ErrInUse), if
// another major version created Dir (ErrVersion), or if the user of the server cannot enter Dir. It
// also returns an error if PostgreSQL exits during startup. The error then contains the end of the
// log.
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

// open is the part of Start during which no other process may use the directory.
func (s *Server) open(ctx context.Context) error {
	unlock, err := lockFile(ctx, filepath.Join(s.place.dir, "start.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	// Run postgres as the user of the server and in its directory, to check that this user can run
	// it there.
	if s.major, err = commandVersion(ctx, s.place.command("postgres", "--version")); err != nil {
		return fmt.Errorf("as user %s: %w", s.place.account.name, err)
	}
	if err := s.place.prepare(ctx, s.major, s.config.Unsafe); err != nil {
		return err
	}
	return s.launch(ctx)
}

// launch starts the postmaster and waits until it is ready.
func (s *Server) launch(ctx context.Context) error {
	begin := time.Now()
	logOffset, err := s.place.rotateLog()
	if err != nil {
		return err
	}
	child, err := startChild(s.place, s.arguments(), s.config)
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

// watch waits for the end of a child.
func (s *Server) watch(child *child) {
	<-child.done
	if !child.asked.Load() {
		s.config.Logger.Error("PostgreSQL exited", "dir", s.place.dir, "pid", child.pid(), "how", child.how, "log",
			s.place.logPath())
	}
	s.markDead()
}

// markDead closes dead if the server has exited and is not being restarted.
func (s *Server) markDead() {
	s.state.Lock()
	defer s.state.Unlock()
	if !s.restarting && closed(s.child.done) && !closed(s.dead) {
		close(s.dead)
	}
}

// DSN returns the connection string of the database postgres for its superuser, through the Unix
// socket. It does not change with restarts, or with later runs in the same Dir.
func (s *Server) DSN() string { return s.DSNFor("postgres") }

// DSNFor returns the DSN of another database of this server.
func (s *Server) DSNFor(db string) string {
	return fmt.Sprintf("host=%s port=%s user=%s dbname=%s", s.place.socketDir, port, superuser, quoteDSN(db))
}

// Dir returns the absolute path of Config.Dir.
func (s *Server) Dir() string { return s.place.dir }

// Version returns the major version of PostgreSQL, such as 15.
func (s *Server) Version() int { return s.major }

// PID returns the process ID of the postmaster. If the postmaster has exited, it returns the old
// ID.
func (s *Server) PID() int { return s.current().pid() }

// Dead returns a channel that is closed when the server has stopped or exited; a successful Restart
// does not close it. If the server exited, Restart starts it again, and Dead then returns a new
// channel.
func (s *Server) Dead() <-chan struct{} {
	s.state.Lock()
	defer s.state.Unlock()
	return s.dead
}

// Stop stops the server: it closes its connections, writes a checkpoint and waits. When ctx ends,
// or after 30 seconds, it stops without the checkpoint (the next start recovers) and returns an
// error. An Ephemeral server always stops without one, and its Dir is removed. A second Stop does
// nothing.
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
	s.markDead() // watch may not have noticed yet
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

// Restart stops the server and starts it again, with the same DSN. Mode "fast" closes the
// connections and writes a checkpoint. Mode "immediate" is a crash: the server recovers from its
// WAL. A server that has exited is only started.
func (s *Server) Restart(ctx context.Context, mode string) error {
	signals := map[string]syscall.Signal{"fast": syscall.SIGINT, "immediate": syscall.SIGQUIT}
	signal, known := signals[mode]
	if !known {
		return fmt.Errorf("restart PostgreSQL: mode must be fast or immediate (got %q)", mode)
	}
	s.change.Lock()
	defer s.change.Unlock()
	if s.stopped {
		return errors.New("restart PostgreSQL: the server was stopped")
	}
	s.markDead()
	s.setRestarting(true)
	err := s.halt(ctx, signal)
	if err == nil {
		err = s.launch(ctx)
	}
	s.setRestarting(false)
	s.markDead()
	if err != nil {
		return fmt.Errorf("restart PostgreSQL in %q: %w", s.place.dir, err)
	}
	return nil
}

// halt stops the current child with the signal mode. If that takes too long, it sends SIGQUIT and
// returns an error.
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
	return fmt.Errorf("timed out; stopped without a checkpoint: %w", context.Cause(ctx))
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

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
