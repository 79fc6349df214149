package server

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/internal/durations"
)

const (
	// lateLease is how long a sink may be without a node that delivers before doctor warns. Another
	// node takes a lease within a second after its end.
	lateLease = time.Minute
	// nearMaxLag is the portion of max_lag from which doctor warns.
	nearMaxLag = 0.8
	// deadLetterWarning is how long doctor warns about a dead letter.
	deadLetterWarning = 24 * time.Hour
)

// sinkFacts are the facts about a sink that doctor judges. Times are ages in seconds.
type sinkFacts struct {
	Namespace  string
	SinkID     string
	State      string
	Failures   int32
	LastError  string
	ErrorAge   float64
	Oldest     float64 // age of the oldest change that is not delivered; 0 if there is none
	Lag        float64 // like Oldest, but not older than the last resume
	MaxLag     float64
	Lost       bool    // changes were deleted before they were delivered
	NodeID     int64   // 0 if no node has the lease
	NodeGone   bool    // the node no longer has a row
	LeaseEnded float64 // how long ago the lease ended; negative if it has not
	Letters    int64   // dead letters of the last day
}

// checkSinks finds sinks that do not deliver, or soon will not.
func (e *examination) checkSinks(ctx context.Context, conn *pgx.Conn) error {
	if e.Schema.Version == 0 {
		return nil
	}
	rows, err := conn.Query(ctx, `
		SELECT s.namespace, s.sink_id, s.state, s.failures, coalesce(s.last_error, ''),
		       coalesce(extract(epoch FROM statement_timestamp() - s.last_error_time), 0)::float8,
		       coalesce(extract(epoch FROM statement_timestamp() - l.oldest_time), 0)::float8,
		       coalesce(extract(epoch FROM statement_timestamp()
		                  - greatest(l.oldest_time, CASE WHEN l.oldest_time IS NOT NULL THEN s.resumed_time END)),
		                0)::float8,
		       extract(epoch FROM s.max_lag)::float8,
		       EXISTS (
		         SELECT 1 FROM change_drops d
		           LEFT JOIN ROWS FROM (unnest(s.lanes), unnest(s.seqs)) AS item(lane, seq) ON item.lane = d.lane
		          WHERE d.namespace = s.namespace AND d.seq > coalesce(item.seq, 0)),
		       coalesce(s.node_id, 0), s.node_id IS NOT NULL AND n.node_id IS NULL,
		       coalesce(extract(epoch FROM statement_timestamp() - s.lease_time), 0)::float8,
		       (SELECT count(*) FROM sink_dead_letters d
		         WHERE d.namespace = s.namespace AND d.sink_id = s.sink_id
		           AND d."time" > statement_timestamp() - make_interval(secs => $1))
		  FROM sinks s
		  JOIN sink_lags l ON l.namespace = s.namespace AND l.sink_id = s.sink_id
		  LEFT JOIN nodes n ON n.node_id = s.node_id
		 ORDER BY s.namespace, s.sink_id`, deadLetterWarning.Seconds())
	if err != nil {
		return err
	}
	sinks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sinkFacts])
	if err != nil {
		return err
	}
	listed := map[string]int{}
	for n := range sinks {
		for _, f := range sinks[n].findings() {
			if listed[f.about]++; listed[f.about] <= longestListed {
				e.Warnings = append(e.Warnings, f.finding)
			}
		}
	}
	return nil
}

// sinkFinding is a finding about a sink. Doctor lists only a few findings of each kind.
type sinkFinding struct {
	about string
	finding
}

// findings returns the problems of a sink.
func (s *sinkFacts) findings() (found []sinkFinding) {
	name := s.Namespace + "/" + s.SinkID
	words := output.ShellWord(s.Namespace) + " " + output.ShellWord(s.SinkID)
	explain := "progressor explain sink " + words
	add := func(about, next, format string, args ...any) {
		found = append(found, sinkFinding{about, finding{What: fmt.Sprintf(format, args...), Next: next}})
	}
	switch s.State {
	case "BROKEN", "DISABLED":
		add(s.State, explain, "sink %s has been %s for %s, and delivers nothing: %s", name, s.State, span(s.ErrorAge),
			s.LastError)
		return append(found, s.deadLetterFindings(name, words)...)
	case "FAILING":
		add(s.State, explain, "sink %s fails: %s in a row, the last one %s ago: %s", name,
			output.Counted(int(s.Failures), "failure"), span(s.ErrorAge), s.LastError)
	}
	if s.Lost {
		add("lost", explain, "changes were deleted before sink %s delivered them: it becomes BROKEN when it continues",
			name)
	}
	if s.Lag > nearMaxLag*s.MaxLag {
		add("lag", explain, "sink %s (%s) has not delivered a change for %s, and becomes BROKEN after %s (max_lag)",
			name, s.State, span(s.Lag), span(s.MaxLag))
	}
	const next = "check that a node runs without engine.requests_only, and look for \"cannot read the sinks\" in " +
		"its log"
	switch {
	case s.State == "PAUSED":
	case s.NodeID != 0 && s.LeaseEnded > lateLease.Seconds():
		gone := ""
		if s.NodeGone {
			gone = ", which is gone,"
		}
		add("lease", next, "no node delivers for sink %s: the lease of node %d%s ended %s ago", name, s.NodeID, gone,
			span(s.LeaseEnded))
	case s.NodeID == 0 && s.Oldest > lateLease.Seconds():
		add("lease", next, "no node delivers for sink %s: its oldest change has waited for %s", name, span(s.Oldest))
	}
	return append(found, s.deadLetterFindings(name, words)...)
}

// deadLetterFindings reports the dead letters of the last day.
func (s *sinkFacts) deadLetterFindings(name, words string) []sinkFinding {
	if s.Letters == 0 {
		return nil
	}
	return []sinkFinding{{"dead letters", finding{
		What: fmt.Sprintf("the target of sink %s rejected %s permanently in the last 24 h", name,
			output.Counted(int(s.Letters), "change")),
		Next: "progressor sink get " + words + " lists them; progressor sink retry " + words +
			" --all delivers them again",
	}}}
}

// span formats seconds.
func span(seconds float64) string {
	return durations.Rounded(time.Duration(seconds * float64(time.Second)))
}
