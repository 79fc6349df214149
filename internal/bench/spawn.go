package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	dto "github.com/prometheus/client_model/go"
)

// spawned is another process of this program, in one of the roles.
type spawned struct {
	cmd     *exec.Cmd
	input   io.WriteCloser
	address string // host:port

	protected string // the address of an engine that requires authentication, or ""
}

// spawnWait is how long a process may take to be ready, or to end.
const spawnWait = 30 * time.Second

func (r *runner) spawn(ctx context.Context, role string, o order) (*spawned, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	s := &spawned{cmd: exec.Command(program, "bench", "--role", role)} // it ends when its input is closed
	s.cmd.Stderr = r.env.Stderr
	if s.input, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process of the %s: %w", role, err)
	}
	if err := s.begin(ctx, o, output); err != nil {
		return nil, errors.Join(fmt.Errorf("start the process of the %s: %w", role, err), s.close())
	}
	return s, nil
}

// begin sends the order and waits until the process is ready.
func (s *spawned) begin(ctx context.Context, o order, output io.Reader) error {
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if _, err := s.input.Write(append(line, '\n')); err != nil {
		return err
	}
	type answer struct {
		line []byte
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(output).ReadBytes('\n')
		answers <- answer{line, err}
	}()
	select {
	case a := <-answers:
		if a.err != nil {
			return fmt.Errorf("the process ended before it was ready: %w", a.err)
		}
		var r ready
		if err := json.Unmarshal(a.line, &r); err != nil {
			return fmt.Errorf("the process sent %q: %w", a.line, err)
		}
		s.address, s.protected = r.Address, r.Protected
		return nil
	case <-time.After(spawnWait):
		return errors.New("the process was not ready within " + spawnWait.String())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release lets the processor release the calls that it holds. It sends the second line of input.
func (s *spawned) release() error {
	_, err := io.WriteString(s.input, "\n")
	return err
}

// close asks the process to end, and kills it if it does not.
func (s *spawned) close() error {
	_ = s.input.Close() // fails if the process has ended
	late := time.AfterFunc(spawnWait+10*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("process of the bench: %w", err)
	}
	return nil
}

func (s *spawned) url() string { return "http://" + s.address }

// cpu returns the CPU time of the process.
func (s *spawned) cpu() (time.Duration, error) {
	stat, err := readProcStat(s.cmd.Process.Pid)
	return stat.own, err
}

// flushes reads the histogram of group commits from /metrics.
func (s *spawned) flushes() (items, flushes float64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), spawnWait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url()+"/metrics", nil)
	if err != nil {
		return 0, 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0, err
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return 0, 0, fmt.Errorf("read /metrics: %w", err)
	}
	items, flushes = sumHistogram(families[flushMetric])
	return items, flushes, nil
}

// sumHistogram adds up a histogram over its labels. family may be nil.
func sumHistogram(family *dto.MetricFamily) (sum, count float64) {
	for _, metric := range family.GetMetric() {
		sum += metric.GetHistogram().GetSampleSum()
		count += float64(metric.GetHistogram().GetSampleCount())
	}
	return sum, count
}
