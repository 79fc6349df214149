package jobs

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/progressor-engine/progressor/storage/jobs"
)

// In any period, no more jobs start than the burst and the rate allow, regardless of how late jobs
// use their starts, and of how often the bucket is refilled.
func TestNoMoreStartsThanTheRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := jobs.Constraint{
			Name: "c", RateCount: rapid.Int32Range(1, 50).Draw(t, "count"),
			RatePer:   time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms")) * time.Millisecond,
			RateBurst: rapid.Int32Range(1, 20).Draw(t, "burst"),
		}
		now := time.Unix(1_700_000_000, 0)
		state := jobs.KeyState{Line: "c=", Now: now}
		var starts []time.Time
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "wait")) * time.Millisecond)
			if rapid.Bool().Draw(t, "claims") {
				for range rapid.Int32Range(0, state.Unstarted).Draw(t, "claimed") {
					starts = append(starts, now)
					state.Unstarted--
				}
				continue
			}
			state.Now = now
			l := newKeyQueue(&rule{Constraint: c}, state)
			for range min(l.room, rapid.Int32Range(0, 30).Draw(t, "waiting")) {
				l.take()
			}
			b := l.bucket()
			state.HasBucket, state.Tokens, state.BucketUnstarted, state.RefilledTime, state.Unstarted = true, b.Tokens,
				b.Unstarted, b.Time, b.Unstarted
			if (b.Next > 0) != (l.room == 0) {
				t.Fatalf("room for %d, next pass in %s: %+v", l.room, b.Next, b)
			}
		}
		for first := range starts {
			for last := first; last < len(starts); last++ {
				most := float64(c.RateBurst) + starts[last].Sub(starts[first]).Seconds()*perSecond(c)
				if n := last - first + 1; float64(n) > most+1e-6 {
					t.Fatalf("%d starts in %s, at most %f", n, starts[last].Sub(starts[first]), most)
				}
			}
		}
	})
}

// The value of a key expression becomes a text. The text of a number is the same for each JSON form
// of the number. A long text is replaced by its SHA-256 digest, which is not too long for an index.
func TestKeyText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, key, want string }{
		{`{"a": "x"}`, "job.args.a", "x"}, {`{"a": 7}`, "job.args.a", "7"}, {`{"a": 7.5}`, "job.args.a", "7.5"},
		{`{"a": {"$float": 7}}`, "job.args.a", "7"}, {`{"a": true}`, "job.args.a", "true"},
		{`{"a": null}`, "job.args.a", ""}, {`{}`, "job.args.a", ""}, {`null`, "job.args.a", ""},
		{`{"a": [1]}`, "job.args.a", ""},
		{`{}`, "string(job.priority) + job.name", "7work"}, {`{}`, `"x" in job.tags`, "true"},
		{`{}`, "job.metadata.m", "1"},
		{`{"a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}`,
			"job.args.a + job.args.a + job.args.a + job.args.a + job.args.a",
			"sha256:fee1a848cb6763c3088a0e523541b46ac171af2677b062178a9116c4612b352f"},
	} {
		r, err := compile(jobs.Constraint{Name: "c", Match: "true", Key: c.key, MaxRunning: 1})
		if err != nil {
			t.Fatal(err)
		}
		s := jobs.Subject{
			Name: "work", Args: []byte(c.args), Priority: 7, Tags: []byte(`["x"]`), Metadata: []byte(`{"m": 1}`),
		}
		if got, matches := r.keyFor(variables(s)); !matches || got != c.want {
			t.Errorf("%s of %s is %q, %t, want %q", c.key, c.args, got, matches, c.want)
		}
	}
}

// If an expression fails for a job or costs too much, the job does not match.
func TestFailingMatch(t *testing.T) {
	t.Parallel()
	for match, want := range map[string]bool{
		`job.args.region == "eu"`: false, `job.name == "work" || job.args.region == "eu"`: true,
		`job.args.region == "eu" && job.name == "x"`: false,
		`has(job.args.region)`:                       false,
		`job.args.list.all(a, job.args.list.all(b, job.args.list.all(c, a + b + c > 0.0)))`: false,
	} {
		r, err := compile(jobs.Constraint{Name: "c", Match: match, MaxRunning: 1})
		if err != nil {
			t.Fatal(err)
		}
		s := jobs.Subject{
			Name: "work",
			Args: []byte(`{"list": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,
				16,17,18,19,20,21,22,23,24,25,26,27,28,29,30]}`),
		}
		if _, got := r.keyFor(variables(s)); got != want {
			t.Errorf("%s: %t", match, got)
		}
	}
}
