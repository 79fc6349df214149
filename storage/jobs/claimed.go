package jobs

import (
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"
)

// Job is the row in jobs that belongs to the claim of a job.
type Job struct {
	Name      string          `json:"name"`
	TimeoutUs int64           `json:"timeout_us"`
	Takeovers int32           `json:"takeovers"`
	Tags      []string        `json:"tags"`
	Options   json.RawMessage `json:"options"` // as in NewJob
	Failures  json.RawMessage `json:"failures"`

	// ConstraintsVersion is the version of the constraints for ConstraintKeys, or 0 if there were
	// none.
	ConstraintsVersion int64 `json:"constraints_version"`
	// ConstraintsNow is the version at the time of the claim, or 0 if there are none or it is
	// unknown.
	ConstraintsNow int64             `json:"constraints_now"`
	ConstraintKeys map[string]string `json:"constraint_keys"`
}

// JobOf returns the job of a claim, or nil if it is not a job. The result is shared and must not be
// modified.
func JobOf(text json.RawMessage) (*Job, error) {
	if len(text) == 0 {
		return nil, nil
	}
	if j := readJobs.get(text); j != nil {
		return j, nil
	}
	var j Job
	if err := json.Unmarshal(text, &j); err != nil {
		return nil, fmt.Errorf("row of jobs: %w", err)
	}
	for _, absent := range []*json.RawMessage{&j.Options, &j.Failures} {
		if string(*absent) == "null" {
			*absent = nil
		}
	}
	readJobs.put(text, &j)
	return &j, nil
}

// readJobs caches parsed rows of jobs. An attempt needs its row four times, and most jobs with one
// name have the same text. Without the cache, parsing took a quarter of the engine's time for an
// empty job.
var readJobs jobCache

// jobCache holds at most cachedJobs rows of at most cachedJobBytes each. When it is full, it is
// cleared.
type jobCache struct {
	mu     sync.RWMutex
	byText map[string]*Job
}

const (
	cachedJobs     = 1024
	cachedJobBytes = 1024
)

func (c *jobCache) get(text []byte) *Job {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byText[string(text)]
}

func (c *jobCache) put(text []byte, j *Job) {
	if len(text) > cachedJobBytes {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byText == nil || len(c.byText) >= cachedJobs {
		c.byText = make(map[string]*Job, cachedJobs)
	}
	c.byText[string(text)] = j
}

// Timeout returns the timeout of an attempt.
func (j *Job) Timeout() time.Duration {
	return time.Duration(min(j.TimeoutUs, math.MaxInt64/1000)) * time.Microsecond
}
