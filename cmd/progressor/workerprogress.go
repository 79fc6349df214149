package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"

	"github.com/progressor-engine/progressor/client"
)

// readProgress reports the progress that a command writes, one line each, until it closes the file.
func readProgress(ctx context.Context, r io.Reader) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if percent, summary, ok := parseProgress(lines.Text()); ok {
			client.Report(ctx, percent, summary)
		}
	}
	_, _ = io.Copy(io.Discard, r) // after a line that is too long, so that the writer does not block
}

// parseProgress parses "40 half of the pages", "40%", or {"percent": 40, "summary": "half of the
// pages"}.
func parseProgress(line string) (percent float64, summary string, ok bool) {
	line = strings.TrimSpace(line)
	if strings.HasPrefix(line, "{") {
		var p struct {
			Percent float64 `json:"percent"`
			Summary string  `json:"summary"`
		}
		err := json.Unmarshal([]byte(line), &p)
		return p.Percent, p.Summary, err == nil
	}
	number, summary, _ := strings.Cut(line, " ")
	percent, err := strconv.ParseFloat(strings.TrimSuffix(number, "%"), 64)
	return percent, strings.TrimSpace(summary), err == nil
}
