package jobs

import (
	"math"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// Job is the row in jobs that belongs to the claim of a job.
type Job struct {
	Name      string // "" if the claim is not of a job
	Timeout   time.Duration
	Takeovers int32
	Tags      []byte // JSON array of strings, or nil
	Options   []byte // as in NewJob
	Failures  []byte // JSON array, or nil

	// ConstraintsVersion is the version of the constraints for ConstraintKeys, or 0 if there were
	// none.
	ConstraintsVersion int64
	ConstraintKeys     []byte // see KeysOf
	// ConstraintsNow is the version at the time of the claim, or 0 if there are none or it is
	// unknown.
	ConstraintsNow int64
}

// JobOf returns the job of a claim. ok is false if the claim is not of a job.
func JobOf(c *storage.Claim) (job Job, ok bool) {
	return Job{
		Name: c.KindName, Timeout: time.Duration(min(c.KindTimeoutUs, math.MaxInt64/1000)) * time.Microsecond,
		Takeovers: c.KindTakeovers, Tags: c.KindTags, Options: c.KindOptions, Failures: c.KindFailures,
		ConstraintsVersion: c.KindKeysVersion, ConstraintKeys: c.KindKeys, ConstraintsNow: c.KindKeysNow,
	}, c.KindName != ""
}
