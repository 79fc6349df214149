package job

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func fieldMask(paths []string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }

type jobEnqueueCmd struct {
	NS   string `arg:"" name:"ns" help:"Namespace."`
	Name string `arg:"" optional:"" name:"name" help:"Name of the job, by which workers select jobs. With --file: for lines without a name."`

	cli.ClientFlags
	ID             string         `name:"id" placeholder:"ID" help:"Job id. Default: the engine chooses one."`
	Args           string         `placeholder:"JSON|@FILE|@-" help:"Args of the job: JSON, @FILE, or @- for standard input. Default: null."`
	Delay          *time.Duration `placeholder:"DURATION" help:"Earliest start, as a duration from now by the clock of the database. Cannot be used with --run-time."`
	IdempotencyKey string         `short:"k" placeholder:"KEY" help:"Idempotency key: the same request with the same key does not enqueue a second job. Default without --id: a random key."`
	File           string         `short:"f" placeholder:"FILE|-" help:"File with one EnqueueRequest as JSON per line, for many jobs."`
	cli.EndFlags   `set:"what=job"`
	jobChangeFlags
	jobOnceFlags
}

func (jobEnqueueCmd) Help() string {
	return `Enqueue stores a job. The workers or the processor of the namespace run it. With --wait, the command
follows the job to its end, and exits with code 5 if the job failed. On a terminal, it shows a
progress bar.

    progressor job enqueue echo send_mail --id mail-1 --args '{"to":"ann"}' --max-retry 5 --tag urgent --keep-result
    progressor job enqueue echo send_mail --id mail-2 --run-time 1h --timeout 10m
    progressor job enqueue echo report --delay 1s --wait
    progressor job enqueue echo send_code --args '{"code":4711}' --start-deadline 2m
    progressor job enqueue echo sync --unique-key customer-7
    progressor job enqueue echo index --args 8 --delay 10s --unique-key page-8 --unique-scope waiting --unique-replace
    progressor job enqueue echo --file jobs.ndjson

With --file, each line is an EnqueueRequest, such as {"name": "send_mail", "args": {"to": "bob"},
"options": {"maxRetry": 5}}; enum values may be short. Lines are sent in batches of 1,000. Each
batch is stored as a whole or not at all. An error names its line and the number of jobs that were
enqueued before.`
}

func (c *jobEnqueueCmd) Run(a *cli.App) error {
	if c.File != "" {
		return c.file(a)
	}
	if c.Name == "" {
		return cli.UsageError(
			fmt.Errorf("set the name of the job, for example: progressor job enqueue %s send_mail, or --file",
				output.ShellWord(c.NS)))
	}
	req := &progressorv1.EnqueueRequest{Namespace: c.NS, JobId: c.ID, Name: c.Name, IdempotencyKey: c.IdempotencyKey,
		Options: &progressorv1.JobOptions{}}
	var err error
	if req.Args, err = a.JSONValue("--args", c.Args); err != nil {
		return err
	}
	if _, err := c.jobChangeFlags.put(a, req.GetOptions()); err != nil {
		return err
	}
	if err := c.jobOnceFlags.put(req.GetOptions()); err != nil {
		return err
	}
	if c.Delay != nil {
		if c.RunTime != "" {
			return cli.UsageError(errors.New("--delay cannot be used with --run-time: set one of them"))
		}
		req.Delay = durationpb.New(*c.Delay)
	}
	ctx, cancel := a.Request()
	defer cancel()
	ctx, sent := cli.NewChange(ctx, c.IdempotencyKey, c.ID == "")
	req.IdempotencyKey = sent.Key
	resp, err := c.Client().Job.Enqueue(ctx, req)
	if err != nil {
		return sent.Explain(ofJob(jobArgs{c.NS, c.ID}, err), cli.Named("progressor job get", c.NS, c.ID))
	}
	if c.Wait && resp.GetRemoved() {
		return fmt.Errorf("job %s/%s has ended and was removed: its outcome is no longer known",
			resp.GetJob().GetNamespace(), resp.GetJob().GetJobId())
	}
	if c.Wait {
		return followJob(a, c.EndFlags, c.ClientFlags, jobArgs{c.NS, resp.GetJob().GetJobId()})
	}
	if c.JSON() {
		return output.PrintMessage(a.Stdout, resp)
	}
	enqueued := ""
	switch {
	case resp.GetReplaced():
		enqueued = "no: this job existed, and has the new args and time"
	case !resp.GetEnqueued():
		enqueued = "no: this job existed"
	}
	if resp.GetRemoved() {
		enqueued = "no: this job existed, has ended and was removed"
	}
	j := resp.GetJob()
	return output.PrintFields(a.Stdout,
		output.Field{"job", output.OneLine(j.GetNamespace() + "/" + j.GetJobId())},
		output.Field{"name", output.OneLine(j.GetName())},
		output.Field{"state", output.Enum(j.GetState())},
		output.Field{"blocked on", output.Note(j.GetBlockedOn())},
		output.Field{"enqueued", enqueued},
	)
}

// bulkBatch is the number of lines per request. maxBulkLine limits a line to the size of a message.
const (
	bulkBatch   = 1000
	maxBulkLine = 16 << 20
)

// file enqueues the jobs in the lines of a file, batch by batch.
func (c *jobEnqueueCmd) file(a *cli.App) error {
	if err := c.refuseWithFile(a); err != nil {
		return err
	}
	in := a.Stdin
	var size int64
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return cli.UsageError(fmt.Errorf("--file: %w", err))
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		in = f
	}
	b := &jobBulk{cmd: c, app: a, client: c.Client(), size: size, began: time.Now(),
		line: output.NewTerminalLine(a.Stderr, a.Terminal)}
	err := b.read(in)
	b.line.End()
	if err != nil {
		return err
	}
	if c.JSON() {
		return output.PrintJSON(a.Stdout, map[string]int{"enqueued": b.enqueued, "there": b.there})
	}
	there := ""
	if b.there > 0 {
		there = output.Thousands(int64(b.there))
	}
	return output.PrintFields(a.Stdout, output.Field{"enqueued", output.Thousands(int64(b.enqueued))},
		output.Field{"existed before", there})
}

// refuseWithFile returns an error if a flag for a single job is set.
func (c *jobEnqueueCmd) refuseWithFile(a *cli.App) error {
	o := &progressorv1.JobOptions{}
	paths, err := c.jobChangeFlags.put(a, o)
	if err == nil {
		err = c.jobOnceFlags.put(o)
	}
	if err != nil {
		return err
	}
	for flag, given := range map[string]bool{
		"--id": c.ID != "", "--args": c.Args != "", "--idempotency-key": c.IdempotencyKey != "", "--wait": c.Wait,
		"--unique": o.GetUnique() != nil, "--max-takeovers": o.MaxTakeovers != nil, "--delay": c.Delay != nil,
	} {
		if given {
			paths = append(paths, flag)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	return cli.UsageError(fmt.Errorf("--%s cannot be used with --file: set it in the lines of the file",
		strings.TrimPrefix(strings.ReplaceAll(paths[0], "_", "-"), "--")))
}

// jobBulk enqueues the jobs in a file.
type jobBulk struct {
	cmd    *jobEnqueueCmd
	app    *cli.App
	client *client.Client
	size   int64 // size of the file in bytes; 0 if unknown
	began  time.Time

	batch           []*progressorv1.EnqueueRequest
	lines           []int // line of each job of the batch
	done            int64 // bytes
	enqueued, there int
	line            output.TerminalLine
}

func (b *jobBulk) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxBulkLine)
	number := 0
	for lines.Scan() {
		number++
		b.done += int64(len(lines.Bytes())) + 1
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		if text[0] != '{' {
			return b.refuse(number, `must be a JSON object: an EnqueueRequest, such as {"name": "send_mail"}`)
		}
		req := &progressorv1.EnqueueRequest{}
		if err := protoyaml.Unmarshal(text, req); err != nil {
			return b.refuse(number, strings.TrimPrefix(err.Error(), "line 1: "))
		}
		if req.GetNamespace() != "" && req.GetNamespace() != b.cmd.NS {
			return b.refuse(number,
				fmt.Sprintf("namespace: must be that of the command, %[2]s (got %[1]s)", req.GetNamespace(), b.cmd.NS))
		}
		req.Namespace, req.Name = b.cmd.NS, cmp.Or(req.GetName(), b.cmd.Name)
		b.batch, b.lines = append(b.batch, req), append(b.lines, number)
		if len(b.batch) == bulkBatch {
			if err := b.send(); err != nil {
				return err
			}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return b.refuse(number+1, "must have at most 16 MiB")
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	return b.send()
}

// refuse returns the error of a line that cannot be sent, with the number of jobs that were
// enqueued before it.
func (b *jobBulk) refuse(line int, why string) error {
	if before := b.enqueued + b.there; before > 0 {
		why += fmt.Sprintf("; %s of earlier batches were enqueued", output.Counted(before, "job"))
	}
	return cli.UsageError(fmt.Errorf("--file: line %d: %s", line, why))
}

// send enqueues the batch.
func (b *jobBulk) send() error {
	if len(b.batch) == 0 {
		return nil
	}
	ctx, cancel := b.app.Request()
	defer cancel()
	resp, err := b.client.Job.EnqueueBatch(ctx, &progressorv1.EnqueueBatchRequest{Jobs: b.batch})
	if err != nil {
		return b.wrong(err)
	}
	for _, r := range resp.GetJobs() {
		if r.GetEnqueued() {
			b.enqueued++
		} else {
			b.there++
		}
	}
	b.batch, b.lines = b.batch[:0], b.lines[:0]
	b.show()
	return nil
}

// wrong adds the line number to an error. No job of its batch was enqueued.
func (b *jobBulk) wrong(err error) error {
	text := err.Error()
	if connected, ok := errors.AsType[*connect.Error](err); ok {
		text = connected.Message()
	}
	message := fmt.Sprintf("--file: lines %d to %d: ", b.lines[0], b.lines[len(b.lines)-1]) + text
	if field := client.Detail(err).GetField(); strings.HasPrefix(field, "jobs[") {
		index, _, _ := strings.Cut(field[len("jobs["):], "]")
		if n, err := strconv.Atoi(index); err == nil && n < len(b.lines) {
			text = strings.TrimLeft(strings.TrimPrefix(text, "jobs["+index+"]"), ".: ")
			message = fmt.Sprintf("--file: line %d: %s; no job of lines %d to %d was enqueued", b.lines[n], text,
				b.lines[0], b.lines[len(b.lines)-1])
		}
	}
	if before := b.enqueued + b.there; before > 0 {
		message += fmt.Sprintf("; %s before them were", output.Counted(before, "job"))
	}
	return &cli.Advised{Err: err, Message: message}
}

// show shows the progress if the output is a terminal.
func (b *jobBulk) show() {
	if !b.line.Enabled() {
		return
	}
	n := int64(b.enqueued + b.there)
	text := output.Thousands(n) + " jobs"
	if b.size > 0 {
		text = output.Bar(float64(min(b.done, b.size))/float64(b.size), output.ProgressWidth) + " " + text
	}
	b.line.Write(fmt.Sprintf("%s, %.0f/s", text, float64(n)/time.Since(b.began).Seconds()))
}
