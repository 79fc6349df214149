package process

import (
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/internal/durations"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// bulkPoll is the interval at which the progress of a bulk is read.
const bulkPoll = 500 * time.Millisecond

// bulkBar shows the progress of a bulk.
type bulkBar struct {
	output.TerminalLine
	began time.Time
	first int64 // number of processes that were processed when the bar began
}

func (b *bulkBar) show(now *progressorv1.Bulk) {
	if !b.Enabled() {
		return
	}
	if b.began.IsZero() {
		b.began, b.first = time.Now(), now.GetMatched()
	}
	b.Write(barLine(now, now.GetMatched()-b.first, time.Since(b.began)))
}

// barLine returns the progress line of a bulk. met is the number of processes that the bulk
// processed in the time took.
func barLine(b *progressorv1.Bulk, met int64, took time.Duration) string {
	matched, whole := b.GetMatched(), max(b.GetExpected(), b.GetMatched())
	ended := b.GetStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED
	part := 0.0
	if whole > 0 {
		part = float64(matched) / float64(whole)
	}
	if ended {
		part = 1
	}
	line := output.Bar(part, output.ProgressWidth) + " " + output.Thousands(matched)
	switch {
	case ended:
	case b.GetExpectedMore():
		line += " of more than " + output.Thousands(b.GetExpected())
	default:
		line += " of " + output.Thousands(whole)
	}
	if b.GetSkipped() > 0 {
		line += ", " + output.Thousands(b.GetSkipped()) + " skipped"
	}
	if b.GetFailed() > 0 {
		line += ", " + output.Thousands(b.GetFailed()) + " failed"
	}
	if rate := float64(met) / took.Seconds(); rate > 0 && !ended && !b.GetExpectedMore() {
		left := time.Duration(float64(whole-matched) / rate * float64(time.Second))
		line += fmt.Sprintf(", %.0f/s, %s left", rate, durations.Exact(left.Round(time.Second)))
	}
	return line
}
