package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/internal/conformance"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

type conformanceCmd struct {
	Run conformanceRunCmd `cmd:"" help:"Check that an SDK runs durable functions as docs/journal.md says."`
}

type conformanceRunCmd struct {
	cli.OutputFlag
	Cmd          string        `required:"" placeholder:"COMMAND" help:"Command that serves the functions of the kit, for /bin/sh."`
	StartTimeout time.Duration `default:"30s" placeholder:"DURATION" help:"How long the command may take to listen. Default: ${default}."`
	TaskTimeout  time.Duration `default:"10s" placeholder:"DURATION" help:"How long each task may take. Default: ${default}."`
}

func (conformanceRunCmd) Help() string {
	return `Run starts a command that serves the functions of the kit, which docs/journal.md describes. The
command must listen on 127.0.0.1, on the port in the environment variable PORT, and serve each
function as a processor with JSON at the path /NAME. Run needs no engine and no database.

The kit sends the tasks of scripted processes, as an engine would, and compares the entries, timers,
commands and responses with those of the functions in Go. Then it repeats each script once for each
result with entries: it loses this result and sends the same history again, as after a crash. The
outcome must be the same. The exit code is 1 if anything differs. Run ends at once if a task has no
answer in time.

    progressor conformance run --cmd 'node sdk/typescript/test/conformance.mjs'
    progressor conformance run --cmd './functions' -o json`
}

func (c *conformanceRunCmd) Run(a *cli.App) error {
	ctx, cancel := a.Interruptible()
	defer cancel()
	address, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	program, err := startProgram(c.Cmd, address, a.Stderr)
	if err != nil {
		return err
	}
	defer program.stop()
	if err := program.await(ctx, c.StartTimeout); err != nil {
		return err
	}
	report := conformanceReport{Scenarios: []conformance.Result{}}
	if err := conformance.Run(ctx, c.TaskTimeout, program.function, func(r conformance.Result) {
		report.add(r)
		if !c.JSON() {
			printScenario(a.Stdout, r)
		}
	}); err != nil {
		return err
	}
	if c.JSON() {
		err = output.PrintJSON(a.Stdout, report)
	} else {
		_, err = fmt.Fprintf(a.Stdout, "%s, %s, %d of them differ\n", output.Counted(len(report.Scenarios), "scenario"),
			output.Counted(report.Runs, "run"), report.Different)
	}
	if err == nil && report.Different > 0 {
		err = &cli.CodedError{Code: cli.ExitFailed, Err: fmt.Errorf("the functions differ in %s",
			output.Counted(report.Different, "run"))}
	}
	return err
}

type conformanceReport struct {
	Runs      int                  `json:"runs"`
	Different int                  `json:"different"`
	Scenarios []conformance.Result `json:"scenarios"`
}

func (r *conformanceReport) add(s conformance.Result) {
	r.Runs += s.Runs
	r.Different += len(s.Differences)
	r.Scenarios = append(r.Scenarios, s)
}

func printScenario(w io.Writer, r conformance.Result) {
	if len(r.Differences) == 0 {
		fmt.Fprintf(w, "ok         %s (%s): %s\n", r.Scenario, r.Function, output.Counted(r.Runs, "run"))
		return
	}
	fmt.Fprintf(w, "DIFFERENT  %s (%s)\n", r.Scenario, r.Function)
	for _, d := range r.Differences {
		if d.Killed != "" {
			fmt.Fprintf(w, "  with the result lost that has: %s\n", d.Killed)
		}
		fmt.Fprintf(w, "  %s\n    expected  %s\n    got       %s\n", d.Where, d.Expected, d.Got)
	}
}

// freeAddress returns an address on which a program can listen.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// program is a command that serves functions.
type program struct {
	address string
	group   int // the process group
	ended   chan struct{}
	err     error // set when ended is closed
}

func startProgram(command, address string, log io.Writer) (*program, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Env = append(os.Environ(), "PORT="+port)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // background processes may keep the output open
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &program{address: address, group: cmd.Process.Pid, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// await waits until the program listens.
func (p *program) await(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended:
			return fmt.Errorf("the command ended before it listened on %s: %w", p.address, p.err)
		case <-ctx.Done():
			return fmt.Errorf("the command does not listen on %s, the port in PORT: %w", p.address, ctx.Err())
		case <-time.After(readyPoll):
		}
	}
}

// stop ends the program and all its children.
func (p *program) stop() {
	_ = unix.Kill(-p.group, unix.SIGKILL) // it may have ended
	<-p.ended
}

// function returns the function with a name, as a processor.
func (p *program) function(name string) processor.Processor {
	dialed, err := remote.Dial("conformance", &progressorv1.ConnectProcessor{
		Url: "http://" + p.address + "/" + name, Encoding: progressorv1.ConnectProcessor_ENCODING_JSON,
	}, 1, nil)
	if err == nil {
		return dialed
	}
	return processor.Func(func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		return nil, err
	})
}
