//go:build unix

package pgembed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// child is one run of the postmaster.
type child struct {
	process *os.Process
	done    chan struct{} // closed when the postmaster has ended
	how     string        // how it ended, such as "exit status 1"; read after done
	asked   atomic.Bool   // its end was asked for
}

// startChild starts a postmaster whose output goes to the log file.
//
// Linux signals a child when the thread that started it ends (Pdeathsig), and Go ends and makes threads as it likes. So
// the child is started by a goroutine that is locked to its thread and stays there until the child has ended: the thread can
// then only end before the child if this whole process does.
func startChild(place place, arguments []string, ephemeral bool) (*child, error) {
	log, err := os.OpenFile(place.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the PostgreSQL log: %w", err)
	}
	defer log.Close()
	onParentDeath := syscall.SIGINT
	if ephemeral {
		onParentDeath = syscall.SIGQUIT
	}
	cmd := place.command("postgres", arguments...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = procAttributes(place.account.credential(), onParentDeath)
	c := &child{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		c.process = cmd.Process
		started <- nil
		// The error of Wait says less than the state: it is nil where the server ended well.
		_ = cmd.Wait()
		c.how = cmd.ProcessState.String()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run %s as user %s: %w", cmd.Path, place.account.name, err)
	}
	return c, nil
}

func (c *child) pid() int { return c.process.Pid }

// signal fails only where the child has ended, which done tells better.
func (c *child) signal(signal syscall.Signal) { _ = c.process.Signal(signal) }

// end sends the signal, then SIGKILL where that takes longer than wait, and returns when the child has ended.
func (c *child) end(signal syscall.Signal, wait time.Duration) {
	c.asked.Store(true)
	c.signal(signal)
	select {
	case <-c.done:
		return
	case <-time.After(wait):
	}
	c.signal(syscall.SIGKILL)
	<-c.done
}

// waitReady returns when the server answers a query. It does not ask for patience of its own: recovery after a crash takes
// what it takes, and ctx says how long the caller waits.
func waitReady(ctx context.Context, dsn string, child *child) error {
	pause := 5 * time.Millisecond
	for {
		err := ping(ctx, dsn)
		if err == nil {
			return nil
		}
		select {
		case <-child.done:
			return fmt.Errorf("PostgreSQL ended during its start: %s", child.how)
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL is not ready: %w; the last try: %w", context.Cause(ctx), err)
		case <-time.After(pause):
			pause = min(pause*2, 200*time.Millisecond)
		}
	}
}

func ping(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return errors.Join(conn.Ping(ctx), conn.Close(ctx))
}

// runCommand runs a short command and gives its output; an error carries the end of what the command printed.
func runCommand(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	stop()
	text := strings.TrimSpace(out.String())
	if ctx.Err() != nil {
		return text, context.Cause(ctx)
	}
	if err != nil {
		return text, fmt.Errorf("%w\n%s", err, lastLines(text))
	}
	return text, nil
}

// lastLines keeps of a log what is worth repeating in an error.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
