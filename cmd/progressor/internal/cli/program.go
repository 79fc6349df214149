package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// listenPoll is the interval at which Await tries to connect.
const listenPoll = 20 * time.Millisecond

// Program is a command of the user that serves processors on a port of this machine.
type Program struct {
	Address string // 127.0.0.1 and the port

	group int // the process group
	ended chan struct{}
	err   error // how the program has ended; set when ended is closed
}

// StartProgram starts a command with /bin/sh. The environment variable PORT contains the port on
// which the command must listen, and each of the given variables contains the address. log gets the
// output of the command.
func StartProgram(ctx context.Context, command string, log io.Writer, variables ...string) (*Program, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Program{Address: listener.Addr().String(), ended: make(chan struct{})}
	if err := listener.Close(); err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(p.Address)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Env = append(os.Environ(), "PORT="+port)
	for _, name := range variables {
		cmd.Env = append(cmd.Env, name+"="+p.Address)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // background processes may keep the output open
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.group = cmd.Process.Pid
	go func() {
		defer close(p.ended)
		if p.err = cmd.Wait(); p.err == nil {
			p.err = errors.New("exit status 0")
		}
	}()
	return p, nil
}

// Await waits until the program listens.
func (p *Program) Await(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.Address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended:
			return fmt.Errorf("the command ended before it listened on %s: %w", p.Address, p.err)
		case <-ctx.Done():
			return fmt.Errorf("the command does not listen on %s, the port in PORT: %w", p.Address, ctx.Err())
		case <-time.After(listenPoll):
		}
	}
}

// Stop ends the program and all its children.
func (p *Program) Stop() {
	_ = unix.Kill(-p.group, unix.SIGKILL) // it may have ended
	<-p.ended
}
