package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/explain"
)

// sink returns the state of a sink at 100 s. Node 3 delivers its changes.
func sink(state string, change ...func(*explain.SinkState)) explain.SinkState {
	s := explain.SinkState{
		Now: at(100), Namespace: "shop", SinkID: "audit", State: state, Webhook: true, Records: true, Nodes: 2,
		Delivered: at(90),
		Holder:    explain.SinkHolder{NodeID: 3, Address: "host:8080", Alive: true, Beat: at(99), Expires: at(112)},
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

// behind adds a backlog that began at 40 s and exceeds max_lag at 3700 s.
func behind(s *explain.SinkState) {
	s.Backlog = explain.Backlog{Changes: 12, Oldest: at(40), Breaks: at(3700)}
}

func fails(count int32, next float64) func(*explain.SinkState) {
	return func(s *explain.SinkState) {
		s.Failure = explain.SinkFailure{Count: count, Error: "status 500: no disk.", Time: at(95)}
		if next > 0 {
			s.Failure.Next = at(next)
		}
	}
}

func lost(s *explain.SinkState) { s.Backlog.Lost = true }

func deadLetters(count int64) func(*explain.SinkState) {
	return func(s *explain.SinkState) {
		s.DeadLetters = explain.DeadLetters{
			Count:  count,
			Newest: explain.DeadLetter{ChangeID: 7, ProcessID: "o-1", Error: "status 413"},
		}
	}
}

const (
	sinkWaits  = "12 changes wait. The oldest was recorded at 2026-11-20T12:00:40.000Z (1m ago)."
	sinkBreaks = " If the oldest change is not delivered by 2026-11-20T13:01:40.000Z (in 1h), the sink is " +
		"BROKEN."
	otherURL = "To use another target, run progressor sink get shop audit -o json > audit.json, change webhook.url, " +
		"and run progressor sink put shop -f audit.json."
)

var sinkCases = []struct {
	name                  string
	state                 explain.SinkState
	nextTime              time.Time
	detail, next, unblock string
}{
	{"delivers all", sink("ACTIVE"), time.Time{},
		"Node 3 (host:8080) delivers for sink audit, and has delivered all changes, the last ones at " +
			"2026-11-20T12:01:30.000Z (10s ago).",
		"It delivers the next change as soon as it is recorded.", "Nothing needs to be done."},
	{"has never delivered", sink("ACTIVE", func(s *explain.SinkState) { s.Delivered = time.Time{} }), time.Time{},
		"Node 3 (host:8080) delivers for sink audit, and has delivered all changes.",
		"It delivers the next change as soon as it is recorded.", "Nothing needs to be done."},
	{"is slow", sink("ACTIVE", behind), time.Time{}, "Node 3 (host:8080) delivers for sink audit. " + sinkWaits,
		"It delivers them now, up to 500 at a time." + sinkBreaks,
		"If the lag does not shrink, use a faster target. To see the lag, run progressor sink get shop audit. " +
			"webhook.max_concurrent allows more requests at the same time."},
	{"no node has it", sink("ACTIVE", behind, func(s *explain.SinkState) { s.Holder = explain.SinkHolder{} }),
		time.Time{}, "No node has taken sink audit yet. " + sinkWaits,
		"A node takes over the sink within seconds." + sinkBreaks,
		`Nothing needs to be done. If this does not change, look for "cannot read the sinks" in the logs of ` +
			"the nodes."},
	{"its node is dead", sink("ACTIVE", behind, func(s *explain.SinkState) {
		s.Holder.Alive, s.Holder.Beat = false, at(88)
	}), at(112), "Node 3 (host:8080), which has taken sink audit, sent its last heartbeat at " +
		"2026-11-20T12:01:28.000Z (12s ago). " + sinkWaits,
		"Another node takes over the sink at 2026-11-20T12:01:52.000Z (in 12s)." + sinkBreaks,
		"Nothing needs to be done."},
	{"its node is gone", sink("ACTIVE", behind, func(s *explain.SinkState) {
		s.Holder = explain.SinkHolder{NodeID: 3, Expires: at(112)}
	}), at(112), "Node 3, which had taken sink audit, is gone. " + sinkWaits,
		"Another node takes over the sink at 2026-11-20T12:01:52.000Z (in 12s)." + sinkBreaks,
		"Nothing needs to be done."},
	{"no node is left", sink("FAILING", behind, fails(1, 130), func(s *explain.SinkState) {
		s.Nodes, s.Holder = 0, explain.SinkHolder{}
	}), time.Time{}, "The last delivery of sink audit failed at 2026-11-20T12:01:35.000Z (5s ago): status 500: no " +
		"disk. " + sinkWaits + " No live node can deliver for sink audit.",
		"A node that starts takes over the sink." + sinkBreaks,
		"Start a node that runs tasks: progressor serve, without --engine.requests-only."},
	{"fails", sink("FAILING", behind, fails(3, 130)), at(130),
		"The last 3 deliveries of sink audit failed, the newest at 2026-11-20T12:01:35.000Z (5s ago): status 500: no " +
			"disk. " + sinkWaits,
		"Node 3 (host:8080) repeats the delivery at 2026-11-20T12:02:10.000Z (in 30s)." + sinkBreaks,
		"Make the target accept the changes. To repeat the delivery at once, run progressor sink resume shop audit. " +
			otherURL},
	{"repeats now, to Kafka", sink("FAILING", behind, fails(1, 99), func(s *explain.SinkState) { s.Webhook = false }),
		at(99), "The last delivery of sink audit failed at 2026-11-20T12:01:35.000Z (5s ago): status 500: no disk. " +
			sinkWaits, "Node 3 (host:8080) repeats the delivery now." + sinkBreaks,
		"Make the target accept the changes. To repeat the delivery at once, run progressor sink resume shop audit. " +
			strings.Replace(otherURL, "webhook.url", "kafka", 1)},
	{"is paused", sink("PAUSED", behind), at(3700), "Sink audit is paused. " + sinkWaits,
		"Nothing until it is resumed." + sinkBreaks, "To resume it, run progressor sink resume shop audit."},
	{"is paused for too long", sink("PAUSED", behind, func(s *explain.SinkState) { s.Backlog.Breaks = at(99) }), at(99),
		"Sink audit is paused. " + sinkWaits,
		"Nothing until it is resumed. The oldest change is older than max_lag: the sink becomes BROKEN within minutes.",
		"To resume it, run progressor sink resume shop audit."},
	{"lags too far", sink("BROKEN", behind, fails(3, 0)), time.Time{},
		"The engine gave up on sink audit at 2026-11-20T12:01:35.000Z (5s ago): status 500: no disk. " + sinkWaits,
		"Nothing until it is resumed. Changes are not kept for it beyond the retention of the namespace.",
		"To resume it, run progressor sink resume shop audit. The time for max_lag then starts again. To skip the " +
			"waiting changes, first run progressor sink rewind shop audit 0s. " + otherURL},
	{"lost changes", sink("BROKEN", behind, fails(3, 0), lost), time.Time{},
		"The engine gave up on sink audit at 2026-11-20T12:01:35.000Z (5s ago): status 500: no disk. " + sinkWaits,
		"Nothing until it is resumed. Changes are not kept for it beyond the retention of the namespace.",
		"To continue with the oldest change that is left, run progressor sink rewind shop audit 1970-01-01. Then run " +
			"progressor sink resume shop audit. " + otherURL},
	{"will find that changes are lost", sink("ACTIVE", behind, lost), time.Time{},
		"Changes were deleted before sink audit delivered them. " + sinkWaits,
		"It becomes BROKEN at its next delivery.",
		"To continue with the oldest change that is left, run progressor sink rewind shop audit 1970-01-01."},
	{"is disabled", sink("DISABLED", fails(1, 0)), time.Time{},
		"The target of sink audit reported at 2026-11-20T12:01:35.000Z (5s ago) that it does not accept changes: " +
			"status 500: no disk. No change waits.",
		"Nothing until it is resumed. Changes are not kept for it beyond the retention of the namespace.",
		"When the target accepts changes, run progressor sink resume shop audit. " + otherURL +
			" To delete the sink, run progressor sink delete shop audit."},
	{"has nothing to deliver", sink("ACTIVE", func(s *explain.SinkState) { s.Records = false }), time.Time{},
		"Node 3 (host:8080) delivers for sink audit, and has delivered all changes, the last ones at " +
			"2026-11-20T12:01:30.000Z (10s ago). Namespace shop records no changes.",
		"It delivers the next change as soon as it is recorded.",
		"Nothing needs to be done. To record changes, run progressor namespace get shop -o json | " +
			"progressor namespace put shop -f - --changes event,lifecycle."},
	{"has dead letters", sink("PAUSED", deadLetters(2)), time.Time{},
		"Sink audit is paused. No change waits. 2 changes became dead letters. The newest is change 7 of o-1: " +
			"status 413.",
		"Nothing until it is resumed.",
		"To resume it, run progressor sink resume shop audit. To list the dead letters, " +
			"run progressor sink get shop audit. To deliver them again when the target accepts them, run progressor " +
			"sink retry shop audit --all."},
	{"delivers dead letters again", sink("PAUSED", deadLetters(2), func(s *explain.SinkState) {
		s.DeadLetters.Retries = 2
	}), time.Time{}, "Sink audit is paused. No change waits. 2 changes became dead letters. The newest is change 7 " +
		"of o-1: status 413. 2 dead letters wait to be delivered again.",
		"Nothing until it is resumed.",
		"To resume it, run progressor sink resume shop audit. To list the dead letters, " +
			"run progressor sink get shop audit."},
	{"has one dead letter", sink("PAUSED", func(s *explain.SinkState) {
		s.DeadLetters.Count, s.DeadLetters.Retries = 1, 1
	}), time.Time{}, "Sink audit is paused. No change waits. 1 change became a dead letter. 1 dead letter " +
		"waits to be delivered again.", "Nothing until it is resumed.",
		"To resume it, run progressor sink resume shop audit. To list the dead letters, run progressor sink get shop " +
			"audit."},
	{"waits with one change", sink("PAUSED", func(s *explain.SinkState) {
		s.Backlog = explain.Backlog{Changes: 1, Oldest: at(40)}
		s.DeadLetters = explain.DeadLetters{
			Count: 1, Retries: 1, Newest: explain.DeadLetter{ChangeID: 7, ProcessID: "o-1", Error: "status 413"},
		}
	}), time.Time{}, "Sink audit is paused. 1 change waits. It was recorded at 2026-11-20T12:00:40.000Z (1m ago). 1 " +
		"change became a dead letter. It is change 7 of o-1: status 413. 1 dead letter waits to be delivered again.",
		"Nothing until it is resumed.",
		"To resume it, run progressor sink resume shop audit. To list the dead letters, " +
			"run progressor sink get shop audit."},
}

func TestExplainSink(t *testing.T) {
	for _, tt := range sinkCases {
		t.Run(tt.name, func(t *testing.T) {
			e := explain.Sink(tt.state)
			if !e.NextTime.Equal(tt.nextTime) {
				t.Errorf("next at %s, want %s", e.NextTime, tt.nextTime)
			}
			for _, text := range []struct{ what, got, want string }{
				{"detail", e.Detail, tt.detail}, {"next", e.Next, tt.next}, {"unblock", e.Unblock, tt.unblock},
			} {
				if text.got != text.want {
					t.Errorf("%s:\n%s\nwant\n%s", text.what, text.got, text.want)
				}
			}
		})
	}
}
