package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/progressor-engine/progressor/client"
)

// commandReport reads the lines that a command writes to file descriptor 3.
type commandReport struct {
	retryAfter time.Duration // 0 if the command wrote none; valid after read
	done       chan struct{} // closed at the end of read
}

func newCommandReport() *commandReport { return &commandReport{done: make(chan struct{})} }

// read reports the progress that the command writes, until the command closes the file.
func (c *commandReport) read(ctx context.Context, r io.Reader) {
	defer close(c.done)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxReportLine)
	for lines.Scan() {
		if d, ok := parseRetryAfter(lines.Text()); ok {
			c.retryAfter = d
		} else if percent, summary, details, ok := parseProgress(lines.Text()); ok {
			if details == nil || client.ReportDetails(ctx, percent, summary, details) != nil {
				client.Report(ctx, percent, summary)
			}
		}
	}
	_, _ = io.Copy(io.Discard, r) // after a line that is too long, so that the writer does not block
}

// maxReportLine is the maximum length of a line, in bytes: a progress has at most 64 KiB.
const maxReportLine = 128 << 10

// parseRetryAfter parses "retry_after 30s".
func parseRetryAfter(line string) (time.Duration, bool) {
	name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
	d, err := time.ParseDuration(strings.TrimSpace(value))
	return d, name == "retry_after" && err == nil && d >= 0
}

// parseProgress parses "40 half of the pages", "40%", or {"percent": 40, "summary": "half of the
// pages", "details": {"page": 8}}.
func parseProgress(line string) (percent float64, summary string, details json.RawMessage, ok bool) {
	line = strings.TrimSpace(line)
	if strings.HasPrefix(line, "{") {
		var p struct {
			Percent float64         `json:"percent"`
			Summary string          `json:"summary"`
			Details json.RawMessage `json:"details"`
		}
		err := json.Unmarshal([]byte(line), &p)
		return p.Percent, p.Summary, p.Details, err == nil
	}
	number, summary, _ := strings.Cut(line, " ")
	percent, err := strconv.ParseFloat(strings.TrimSuffix(number, "%"), 64)
	return percent, strings.TrimSpace(summary), nil, err == nil
}

// progressVariable returns the environment variable with the last progress of earlier attempts. It
// returns nil if there is none.
func progressVariable(ctx context.Context) []string {
	p := client.LastProgress(ctx)
	if p == nil {
		return nil
	}
	text, err := protojson.Marshal(p)
	if err != nil {
		return nil
	}
	return []string{"PROGRESSOR_PROGRESS=" + string(text)}
}
