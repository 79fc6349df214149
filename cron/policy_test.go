package cron

import (
	"math"
	"strings"
	"testing"
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The enums have the numbers of the API, so that values can be converted.
func TestEnumsMatchAPI(t *testing.T) {
	for prefix, pair := range map[string]struct {
		names  map[int32]string
		values []string // numbered from 1
	}{
		"OVERLAP_ACTION_": {progressorv1.OverlapAction_name,
			[]string{OverlapActionAllow: "ALLOW", OverlapActionSkip: "SKIP",
				OverlapActionCancelPrev: "CANCEL_PREV", OverlapActionParallel: "PARALLEL",
				OverlapActionBufferOne: "BUFFER_ONE"}},
		"FAILURE_ACTION_": {progressorv1.FailureAction_name,
			[]string{FailureRunNew: "RUN_NEW", FailureSkip: "SKIP", FailureRetry: "RETRY",
				FailureBackoff: "BACKOFF", FailureHalfOpen: "HALF_OPEN"}},
		"CONCURRENCY_POLICY_": {progressorv1.ConcurrencyPolicy_name,
			[]string{ConcurrencySkip: "SKIP", ConcurrencyQueue: "QUEUE"}},
		"MISFIRE_POLICY_": {progressorv1.MisfirePolicy_name, []string{MisfireFireNow: "FIRE_NOW", MisfireSkip: "SKIP",
			MisfireCatchUpLimited: "CATCH_UP_LIMITED"}},
		"GAP_": {progressorv1.DaylightSaving_Gap_name, []string{GapShift: "SHIFT", GapSkip: "SKIP"}},
		"OVERLAP_": {progressorv1.DaylightSaving_Overlap_name,
			[]string{OverlapFirst: "FIRST", OverlapLast: "LAST", OverlapBoth: "BOTH"}},
		"DECISION_":    {progressorv1.Decision_name, upper(decisionNames[:])},
		"FIRE_STATUS_": {progressorv1.FireStatus_name, upper(statusNames[:])},
	} {
		if len(pair.names) != len(pair.values) {
			t.Errorf("%s: %d values, the proto enum has %d", prefix, len(pair.values), len(pair.names))
		}
		for number, name := range pair.values {
			if number > 0 && pair.names[int32(number)] != prefix+name {
				t.Errorf("%s%s is %d, which is %s in the proto enum", prefix, name, number, pair.names[int32(number)])
			}
		}
	}
	if Dropped.String() != "dropped" || Skipped.String() != "skipped" {
		t.Error("the names do not match the numbers")
	}
}

func upper(names []string) []string {
	var list []string
	for _, name := range names {
		list = append(list, strings.ToUpper(name))
	}
	return list
}

func TestInvalidPolicies(t *testing.T) {
	for _, test := range []struct {
		policy Policy
		want   string
	}{
		{Policy{Misfire: MisfireCatchUpLimited}, "policy.catchup_limit: must be 1 to 100000 with CATCH_UP_LIMITED"},
		{Policy{CatchUpLimit: 100_001},
			"policy.catchup_limit: must be at most 100000 (got 100001): FIRE_NOW has no limit"},
		{Policy{Overlap: 6}, "policy.overlap_action: must be 0 to 5 (got 6)"},
		{Policy{Failure: -1}, "policy.failure_action: must be 0 to 5 (got -1)"},
		{Policy{Concurrency: 3}, "policy.concurrency_policy: must be 0 to 2 (got 3)"},
		{Policy{Misfire: 4}, "policy.misfire_policy: must be 0 to 3 (got 4)"},
		{Policy{MaxConcurrency: -1}, "policy.max_concurrency: must not be negative (got -1)"},
		{Policy{MaxConcurrency: 10_001}, "policy.max_concurrency: must be at most 10000 (got 10001)"},
		{Policy{QueueLimit: 10_001}, "policy.queue_limit: must be at most 10000 (got 10001)"},
		{Policy{CatchUpWindow: -time.Second}, "policy.catchup_window: must be 0s to 876000h0m0s (got -1s)"},
		{Policy{RetryBackoff: Backoff{Factor: 0.5}}, "policy.retry_backoff.factor: must be at least 1 (got 0.5)"},
		{Policy{RetryBackoff: Backoff{Factor: math.Inf(1)}},
			"policy.retry_backoff.factor: must be at least 1 (got +Inf)"},
		{Policy{RetryBackoff: Backoff{Jitter: math.NaN()}}, "policy.retry_backoff.jitter: must be 0 to 1 (got NaN)"},
		{Policy{RetryBackoff: Backoff{Steps: []time.Duration{1, -1}}},
			"policy.retry_backoff.steps: must be 0s to 876000h0m0s (got -1ns)"},
	} {
		if err := test.policy.Validate(); err == nil || err.Error() != test.want {
			t.Errorf("%+v:\ngot  %v\nwant %s", test.policy, err, test.want)
		}
	}
	if err := (Policy{}).Validate(); err != nil {
		t.Errorf("the zero policy: %v", err)
	}
}

func TestBackoff(t *testing.T) {
	ended := at("2026-03-01 10:00:00")
	for _, test := range []struct {
		backoff Backoff
		n       int32
		want    time.Duration
	}{
		{Backoff{}, 1, time.Second},
		{Backoff{}, 4, 8 * time.Second},
		{Backoff{}, 13, time.Hour},
		{Backoff{}, math.MaxInt32, time.Hour},
		{Backoff{Initial: time.Minute, Factor: 1}, 9, time.Minute},
		{Backoff{Steps: []time.Duration{time.Second, time.Minute}}, 1, time.Second},
		{Backoff{Steps: []time.Duration{time.Second, time.Minute}}, 7, time.Minute},
		{Backoff{}, 0, time.Second},
	} {
		if got := test.backoff.interval(test.n, "shop/report", ended); got != test.want {
			t.Errorf("%+v after failure %d: got %s, want %s", test.backoff, test.n, got, test.want)
		}
	}
	spread := map[time.Duration]bool{}
	for n := range 100 {
		wait := Backoff{Jitter: 0.1}.interval(4, "shop/report", ended.Add(time.Duration(n)))
		if wait < 7200*time.Millisecond || wait > 8800*time.Millisecond {
			t.Fatalf("%s is not 8 s ± 10 %%", wait)
		}
		spread[wait] = true
	}
	if len(spread) < 90 {
		t.Errorf("100 waits have %d distinct values, want at least 90", len(spread))
	}
}
