package bench

import (
	"time"
)

// Report contains all results of one bench run.
type Report struct {
	Machine Machine `json:"machine"`
	Rows    []*Row  `json:"rows"`
}

// The subjects of a row.
const (
	subjectEngine   = "progressor"
	subjectBaseline = "baseline"
)

// Row is one measurement. Values that could not be measured, or do not exist for the workload, are
// absent.
type Row struct {
	Workload string `json:"workload"`
	Subject  string `json:"subject"` // progressor or baseline
	Clients  int    `json:"clients"`
	Keys     bool   `json:"keys"`     // every request has an idempotency key
	History  string `json:"history"`  // none or full
	Metadata bool   `json:"metadata"` // starts have searchable attributes
	Note     string `json:"note,omitempty"`

	Operations   int64    `json:"operations"`
	Seconds      float64  `json:"seconds"`
	OpsPerSecond float64  `json:"ops_per_second"`
	P50Millis    *float64 `json:"p50_ms,omitempty"`
	P99Millis    *float64 `json:"p99_ms,omitempty"`
	WALBytes     *float64 `json:"wal_bytes_per_op,omitempty"`
	PostgresCPU  *float64 `json:"postgres_cpu_us_per_op,omitempty"`
	EngineCPU    *float64 `json:"engine_cpu_us_per_op,omitempty"`
	FlushItems   *float64 `json:"flush_items,omitempty"`
	Refused      int64    `json:"refused"` // requests that were rejected with "overloaded"

	Ratio   *float64 `json:"ratio,omitempty"` // ops/s divided by the ops/s of RatioTo
	RatioTo string   `json:"ratio_to,omitempty"`

	Figures []Figure `json:"figures,omitempty"` // only for workloads that measure something other than a rate
	// Checked counts the rows that each invariant of the database checked after the run.
	Checked map[string]int64 `json:"checked,omitempty"`
}

// Figure is a number with a name and a unit.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// rate sets the rates and latencies of a window.
func (r *Row) rate(w *window) {
	r.Refused = w.refused
	r.fill(int64(w.latencies.n), w.elapsed, &w.latencies, w.spent)
}

func (r *Row) fill(operations int64, elapsed time.Duration, latencies *histogram, s spent) {
	r.Operations, r.Seconds = operations, elapsed.Seconds()
	if elapsed > 0 {
		r.OpsPerSecond = float64(operations) / elapsed.Seconds()
	}
	if latencies != nil && latencies.n > 0 {
		r.P50Millis = new(millis(latencies.quantile(0.50)))
		r.P99Millis = new(millis(latencies.quantile(0.99)))
	}
	r.FlushItems = s.flushItems
	if operations == 0 {
		return
	}
	each := 1 / float64(operations)
	if s.walBytes != nil {
		r.WALBytes = new(*s.walBytes * each)
	}
	if s.postgresTime != nil {
		r.PostgresCPU = new(micros(*s.postgresTime) * each)
	}
	if s.engineTime != nil {
		r.EngineCPU = new(micros(*s.engineTime) * each)
	}
}

// compare sets the ratio to another row, if both have a rate.
func (r *Row) compare(other *Row, name string) {
	if other != nil && other.OpsPerSecond > 0 && r.OpsPerSecond > 0 {
		r.Ratio, r.RatioTo = new(r.OpsPerSecond/other.OpsPerSecond), name
	}
}

func (r *Row) figure(name string, value float64, unit string) {
	r.Figures = append(r.Figures, Figure{Name: name, Value: value, Unit: unit})
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
