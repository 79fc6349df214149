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
	done    chan struct{} // closed when the postmaster has exited
	how     string        // how it exited, such as "exit status 1"; read it after done
	asked   atomic.Bool   // a stop was requested
}

// startChild starts a postmaster with its output in the log file.
//
// Linux signals a child when the thread that started it ends (Pdeathsig), and Go may end threads at
// any time. So a goroutine that is locked to its thread starts the child and waits for it: the
// thread ends before the child only if this process ends.
func startChild(place place, arguments []string, config Config) (*child, error) {
	log, err := os.OpenFile(place.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the PostgreSQL log: %w", err)
	}
	defer log.Close()
	onParentDeath := syscall.SIGINT
	if config.Ephemeral {
		onParentDeath = syscall.SIGQUIT
	}
	cmd := place.command("postgres", arguments...)
	if config.Preload != "" {
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+config.Preload)
	}
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
		// The state is more precise than the error of Wait, which is nil after a clean exit.
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

// signal ignores errors: it fails only if the child has exited, which done reports.
func (c *child) signal(signal syscall.Signal) { _ = c.process.Signal(signal) }

// end sends a signal, and SIGKILL after wait, and returns when the child has exited.
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

// waitReady returns when the server answers a query. It returns an error if the child exits. It has
// no timeout except that of ctx, because recovery after a crash may take a long time.
func waitReady(ctx context.Context, dsn string, child *child) error {
	pause := 5 * time.Millisecond
	for {
		err := ping(ctx, dsn)
		if err == nil {
			return nil
		}
		select {
		case <-child.done:
			return fmt.Errorf("PostgreSQL exited during its start: %s", child.how)
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL is not ready: %w; last error: %w", context.Cause(ctx), err)
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

// runCommand runs a short command and returns its output. If the command fails, the error contains
// the end of the output.
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

// lastLines returns the part of a log that is useful in an error.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
