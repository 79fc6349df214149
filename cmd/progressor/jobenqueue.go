package main

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
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func fieldMask(paths []string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }

type jobEnqueueCmd struct {
	NS   string `arg:"" name:"ns" help:"Namespace."`
	Name string `arg:"" optional:"" name:"name" help:"Name of the job, by which workers choose. With --file: of lines that have none."`

	clientFlags
	ID             string `name:"id" placeholder:"ID" help:"Job id; the engine chooses one where it is missing."`
	Args           string `placeholder:"JSON|@FILE|@-" help:"Args of the job: JSON, @FILE, or @- for standard input."`
	IdempotencyKey string `short:"k" placeholder:"KEY" help:"The same request with the same key enqueues no second job. Default: a random one where there is no --id."`
	File           string `short:"f" placeholder:"FILE|-" help:"Many jobs: a file with an EnqueueRequest as JSON on each line."`
	endFlags       `set:"what=job"`
	jobChangeFlags
	jobOnceFlags
}

func (jobEnqueueCmd) Help() string {
	return `Enqueue makes a job, which workers of the namespace, or its processor, run once to its end. With --wait it follows the job, on a
terminal with a bar, and ends with code 5 where the job has failed.

    progressor job enqueue echo send_mail --id mail-1 --args '{"to":"ann"}' --max-retry 5 --tag urgent --keep-result
    progressor job enqueue echo send_mail --id mail-2 --run-time 1h --timeout 10m
    progressor job enqueue echo report --run-time 1s --wait
    progressor job enqueue echo sync --unique-key customer-7
    progressor job enqueue echo --file jobs.ndjson

With --file each line is an EnqueueRequest, such as {"name": "send_mail", "args": {"to": "bob"}, "options": {"maxRetry": 5}}; enum
values may be short. Lines go in batches of 1,000, each all or nothing: an error names its line, and says how many jobs were
enqueued before.`
}

func (c *jobEnqueueCmd) Run(a *app) error {
	if c.File != "" {
		return c.file(a)
	}
	if c.Name == "" {
		return usageError(fmt.Errorf("want the name of the job, as in: progressor job enqueue %s send_mail, or --file", shellWord(c.NS)))
	}
	req := &progressorv1.EnqueueRequest{Namespace: c.NS, JobId: c.ID, Name: c.Name, IdempotencyKey: c.IdempotencyKey, Options: &progressorv1.JobOptions{}}
	var err error
	if req.Args, err = a.jsonValue("--args", c.Args); err != nil {
		return err
	}
	if _, err := c.jobChangeFlags.put(a, req.GetOptions()); err != nil {
		return err
	}
	if err := c.jobOnceFlags.put(req.GetOptions()); err != nil {
		return err
	}
	ctx, cancel := a.request()
	defer cancel()
	ctx, sent := newChange(ctx, c.IdempotencyKey, c.ID == "")
	req.IdempotencyKey = sent.key
	resp, err := c.client().Job.Enqueue(ctx, req)
	if err != nil {
		return sent.explain(ofJob(jobArgs{c.NS, c.ID}, err), named("progressor job get", c.NS, c.ID))
	}
	if c.Wait {
		return c.followJob(a, c.clientFlags, jobArgs{c.NS, resp.GetJob().GetJobId()})
	}
	if c.json() {
		return printMessage(a.Stdout, resp)
	}
	twin := ""
	if !resp.GetEnqueued() {
		twin = "no: this one was there"
	}
	j := resp.GetJob()
	return printFields(a.Stdout,
		field{"job", oneLine(j.GetNamespace() + "/" + j.GetJobId())},
		field{"name", oneLine(j.GetName())},
		field{"state", shortEnum(j.GetState())},
		field{"blocked on", oneLine(j.GetBlockedOn())},
		field{"enqueued", twin},
	)
}

// bulkBatch is how many lines of a file go in one request. A line is bounded by what a message may have.
const (
	bulkBatch   = 1000
	maxBulkLine = 16 << 20
)

// file enqueues the lines of a file, batch by batch.
func (c *jobEnqueueCmd) file(a *app) error {
	if err := c.refuseWithFile(a); err != nil {
		return err
	}
	in := a.Stdin
	var size int64
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return usageError(fmt.Errorf("--file: %w", err))
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		in = f
	}
	b := &jobBulk{cmd: c, app: a, client: c.client(), size: size, began: time.Now(), line: newTerminalLine(a)}
	err := b.read(in)
	b.line.end()
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(a.Stdout, map[string]int{"enqueued": b.enqueued, "there": b.there})
	}
	there := ""
	if b.there > 0 {
		there = thousands(int64(b.there))
	}
	return printFields(a.Stdout, field{"enqueued", thousands(int64(b.enqueued))}, field{"there before", there})
}

// refuseWithFile refuses what only one job has.
func (c *jobEnqueueCmd) refuseWithFile(a *app) error {
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
		"--unique": o.GetUnique() != nil, "--max-takeovers": o.MaxTakeovers != nil,
	} {
		if given {
			paths = append(paths, flag)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	return usageError(fmt.Errorf("--%s is of one job, and --file of many: each line says its own", strings.TrimPrefix(strings.ReplaceAll(paths[0], "_", "-"), "--")))
}

// jobBulk is a file that is being enqueued.
type jobBulk struct {
	cmd    *jobEnqueueCmd
	app    *app
	client *client.Client
	size   int64 // of the file in bytes; 0: not known
	began  time.Time

	batch           []*progressorv1.EnqueueRequest
	lines           []int // of the batch
	done            int64 // bytes
	enqueued, there int
	line            terminalLine
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
			return b.refuse(number, `it is no JSON object: want an EnqueueRequest, such as {"name": "send_mail"}`)
		}
		req := &progressorv1.EnqueueRequest{}
		if err := messageFromText(text, req); err != nil {
			return b.refuse(number, strings.TrimPrefix(err.Error(), "line 1: "))
		}
		if req.GetNamespace() != "" && req.GetNamespace() != b.cmd.NS {
			return b.refuse(number, fmt.Sprintf("namespace: it is %s, and the command's is %s", req.GetNamespace(), b.cmd.NS))
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
		return b.refuse(number+1, "it has more than 16 MiB")
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	return b.send()
}

// refuse tells of a line that cannot be sent, and how much was enqueued before it.
func (b *jobBulk) refuse(line int, why string) error {
	if before := b.enqueued + b.there; before > 0 {
		why += fmt.Sprintf("; %s of the batches before it are enqueued", counted(before, "job"))
	}
	return usageError(fmt.Errorf("--file: line %d: %s", line, why))
}

// send enqueues the batch.
func (b *jobBulk) send() error {
	if len(b.batch) == 0 {
		return nil
	}
	ctx, cancel := b.app.request()
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

// wrong says which line an error is of: nothing of the batch is enqueued.
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
			message = fmt.Sprintf("--file: line %d: %s; nothing of lines %d to %d is enqueued", b.lines[n], text, b.lines[0], b.lines[len(b.lines)-1])
		}
	}
	if before := b.enqueued + b.there; before > 0 {
		message += fmt.Sprintf(", %s before them are", counted(before, "job"))
	}
	return &advised{error: err, message: message}
}

// show shows on a terminal how far the file is.
func (b *jobBulk) show() {
	if b.line.w == nil {
		return
	}
	n := int64(b.enqueued + b.there)
	text := thousands(n) + " jobs"
	if b.size > 0 {
		text = bar(float64(min(b.done, b.size))/float64(b.size), bulkBarWidth) + " " + text
	}
	b.line.write(fmt.Sprintf("%s, %.0f/s", text, float64(n)/time.Since(b.began).Seconds()))
}
