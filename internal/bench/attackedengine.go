package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/types/known/durationpb"

	sdk "github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/internal/onewrite"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The namespaces of the tenants. The namespaces of their workers have the suffix workSuffix.
const (
	victimName   = "victim"
	attackerName = "attacker"
	workSuffix   = "/work"
)

const (
	// One of jobPortion operations of the victim enqueues a job, takes one as a worker and
	// completes it. The others are calls.
	jobPortion = 20
	// victimWorkers is the number of workers of the victim.
	victimWorkers = 16
)

// attacked is `progressor serve` in its own process, with two tenants.
type attacked struct {
	payload
	counts
	command *Command
	variant variant
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the engine has ended; exit is then its error
	exit    error
	port    string

	victim    *sdk.Client
	operator  string           // the token of the operator, who reads metrics
	token     string           // the token of the attacker
	from      string           // the address of this machine that the attacker uses
	hostile   *http.Client     // client of the attacker
	processor *httptest.Server // processor of the attacker
	answers   []byte           // its response, in JSON
	bodies    []body           // requests of the attacker
	senders   int              // number of clients that send them
}

// openAttacked starts an engine with the default settings and authentication, and stores what the
// tenants need.
func (r *runner) openAttacked(ctx context.Context, d *scratch, v variant) (*attacked, error) {
	a := &attacked{payload: newPayload(ctx), command: r.command, variant: v, from: otherAddress()}
	a.processor = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(a.answers) // the engine may have ended
	}))
	err := a.start(ctx, d.dsn, r.env.Stderr)
	if err == nil {
		err = a.setUp(ctx, d)
	}
	if err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// otherAddress returns an address of this machine other than loopback, or loopback if there is
// none. Engines limit what one address may do, so tenants have different ones.
func otherAddress() string {
	addresses, _ := net.InterfaceAddrs() // on an error, the tenants share an address
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	return "127.0.0.1"
}

// start starts the engine and waits until it is ready.
func (a *attacked) start(ctx context.Context, dsn string, stderr io.Writer) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	a.cmd = exec.Command(program, "serve", "--listen", "0.0.0.0:0", "--auth.mode", "required", "--db.migrate",
		"--log.format", "json", "--log.level", "info")
	own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PROGRESSOR_") })
	a.cmd.Env = append(own, "PROGRESSOR_DB_DSN="+dsn)
	log, err := a.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := a.cmd.Start(); err != nil {
		return fmt.Errorf("start the engine: %w", err)
	}
	ready := make(chan string, 1)
	a.ended = make(chan struct{})
	go func() {
		a.follow(log, ready, stderr)
		a.exit = a.cmd.Wait()
		close(a.ended)
	}()
	select {
	case text := <-ready:
		u, err := url.Parse(text)
		if err != nil {
			return err
		}
		a.port = u.Port()
		return nil
	case <-a.ended:
		return errors.Join(errors.New("the engine ended before it was ready"), a.exit)
	case <-time.After(spawnWait):
		return errors.New("the engine was not ready within " + spawnWait.String())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// follow reads the log of the engine. It sends the URL of the line "ready", and copies errors and
// lines that are not JSON to stderr.
func (a *attacked) follow(log io.Reader, ready chan<- string, stderr io.Writer) {
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		var entry struct{ Level, Msg, URL string }
		if json.Unmarshal(line, &entry) != nil || entry.Level == "ERROR" {
			_, _ = stderr.Write(line)
		}
		if entry.Msg == "ready" {
			ready <- entry.URL
		}
		if err != nil {
			return
		}
	}
}

// stop asks the engine to end, and waits until it has.
func (a *attacked) stop() error {
	_ = a.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
	late := time.AfterFunc(2*spawnWait, func() { _ = a.cmd.Process.Kill() })
	defer late.Stop()
	<-a.ended
	if a.exit != nil {
		return fmt.Errorf("the engine: %w", a.exit)
	}
	return nil
}

// close ends everything that still runs.
func (a *attacked) close() {
	if a.ended != nil {
		_ = a.cmd.Process.Kill() // fails if it has ended
		<-a.ended
	}
	a.processor.Close()
}

// url returns the URL of the engine at an address.
func (a *attacked) url(address string) string { return "http://" + net.JoinHostPort(address, a.port) }

func (a *attacked) cpu() (time.Duration, error) {
	stat, err := readProcStat(a.cmd.Process.Pid)
	return stat.own, err
}

// setUp creates the keys, the namespaces, and the processes of the victim.
func (a *attacked) setUp(ctx context.Context, d *scratch) error {
	var err error
	if a.operator, err = d.createKey(ctx, "*", "root"); err != nil {
		return err
	}
	victim, err := d.createKey(ctx, victimName+"*", "client", "worker")
	if err != nil {
		return err
	}
	if a.token, err = d.createKey(ctx, attackerName+"*", "admin"); err != nil {
		return err
	}
	a.victim = sdk.New(a.url("127.0.0.1"), sdk.WithHTTPClient(newHTTPClient()), sdk.WithoutKeys(),
		sdk.WithToken(victim))
	a.hostile = &http.Client{Transport: onewrite.Transport{Next: &http.Transport{
		MaxIdleConns: 100_000, MaxIdleConnsPerHost: 100_000, DisableCompression: true,
	}}}
	operator := sdk.New(a.url("127.0.0.1"), sdk.WithToken(a.operator))
	for _, tenant := range []string{victimName, attackerName} {
		push := &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Builtin{
			Builtin: &progressorv1.BuiltinProcessor{Name: "echo"},
		}}
		if tenant == attackerName {
			push = &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Connect{
				Connect: &progressorv1.ConnectProcessor{
					Url: a.processor.URL, Encoding: progressorv1.ConnectProcessor_ENCODING_JSON,
				},
			}}
		}
		pull := &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Pull{
			Pull: &progressorv1.PullProcessor{},
		}}
		for name, processor := range map[string]*progressorv1.ProcessorConfig{tenant: push, tenant + workSuffix: pull} {
			ns := &progressorv1.Namespace{
				Namespace: name, Processor: processor, HistoryMode: progressorv1.HistoryMode_HISTORY_MODE_NONE,
			}
			_, err := operator.Namespace.PutNamespace(ctx, &progressorv1.PutNamespaceRequest{Namespace: ns})
			if err != nil {
				return fmt.Errorf("put a namespace: %w", err)
			}
		}
	}
	return each(ctx, victimProcesses, 64, func(ctx context.Context, i int) error {
		_, err := a.victim.Process.Start(ctx, &progressorv1.StartRequest{
			Namespace: victimName, ProcessId: processID(uint64(i)), Args: a.args,
		})
		return err
	})
}

// work sends a request of the victim: a call, or sometimes a job.
func (a *attacked) work(ctx context.Context, c *client) error {
	if c.random.IntN(jobPortion) == 0 {
		return asOverload(a.doJob(ctx, c))
	}
	_, err := a.victim.Process.Call(ctx, &progressorv1.CallRequest{
		Namespace: victimName, ProcessId: processID(c.random.Uint64N(victimProcesses)), Args: a.args,
	})
	return asOverload(err)
}

// doJob enqueues a job, takes one as a worker, and completes it.
func (a *attacked) doJob(ctx context.Context, c *client) error {
	_, err := a.victim.Job.Enqueue(ctx, &progressorv1.EnqueueRequest{Namespace: victimName + workSuffix, Name: "work"})
	if err != nil {
		return err
	}
	polled, err := a.victim.Worker.Poll(ctx, &progressorv1.PollRequest{
		Namespaces: []string{victimName + workSuffix}, WorkerId: fmt.Sprint("worker-", c.number%victimWorkers),
		MaxLeases: 1, Wait: durationpb.New(5 * time.Second),
	})
	if err != nil {
		return err
	}
	for _, l := range polled.GetLeases() {
		_, err = a.victim.Worker.Complete(ctx, &progressorv1.CompleteRequest{
			LeaseToken: l.GetLeaseToken(),
			Answer:     &progressorv1.CompleteRequest_JobResult{JobResult: &progressorv1.JobResult{}},
		})
	}
	return err
}

// series is a metric of the engine with one value of a label. label may be "".
type series struct{ name, label, value string }

func (s series) String() string {
	if s.label == "" {
		return s.name
	}
	return fmt.Sprintf("%s{%s=%q}", s.name, s.label, s.value)
}

// metric returns the sum of a series.
func (a *attacked) metric(ctx context.Context, s series) (sum float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url("127.0.0.1")+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+a.operator)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("read /metrics: %w", err)
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return 0, fmt.Errorf("read /metrics: %w", err)
	}
	for _, metric := range families[s.name].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == s.label && label.GetValue() == s.value {
				sum += metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum, nil
}
