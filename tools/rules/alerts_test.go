package main

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	interval = 30 * time.Second // between two scrapes, and between two evaluations of the rules
	scrapes  = 80               // in each test
)

// In the series, "0+30x80" starts at 0 and grows by 30 with each of the next 80 scrapes. With one
// scrape every 30 s, that is one per second.
var alertTests = []struct {
	name, series, want string // want contains the alerts that fire after the last scrape
}{
	{"nothing happens", `
		progressor_rpc_failures_total{method="Call"} 0x80
		progressor_rpc_duration_seconds_count{method="Call",code="ok",instance="a"} 0+3000x80
		progressor_requests_refused_total{instance="a",bound="place"} 0x80
		progressor_auth_total{instance="a",scheme="key",outcome="ok"} 0+3000x80
		progressor_auth_total{instance="a",scheme="key",outcome="limited"} 0x80
		progressor_http_rejected_total{instance="a",reason="undecodable"} 0x80
		progressor_scan_errors_total{instance="a",scan="timers"} 0x80`, ""},
	{"2 requests of 1000 fail", `
		progressor_rpc_failures_total{method="Call",instance="a"} 0+6x80
		progressor_rpc_duration_seconds_count{method="Call",code="ok",instance="a"} 0+2994x80
		progressor_rpc_duration_seconds_count{method="Call",code="internal",instance="a"} 0+6x80`, ""},
	{"20 requests of 1000 fail on one of two nodes", `
		progressor_rpc_failures_total{method="Call",instance="a"} 0x80
		progressor_rpc_failures_total{method="Call",instance="b"} 0+120x80
		progressor_rpc_duration_seconds_count{method="Call",code="ok",instance="a"} 0+3000x80
		progressor_rpc_duration_seconds_count{method="Call",code="ok",instance="b"} 0+2880x80
		progressor_rpc_duration_seconds_count{method="Call",code="internal",instance="b"} 0+120x80`,
		"ProgressorUnavailable"},
	{"all requests of a method that is used twice a minute fail", `
		progressor_rpc_failures_total{method="GetRun",instance="a"} 0+0x40 0+1x39
		progressor_rpc_duration_seconds_count{method="GetRun",code="internal",instance="a"} 0+0x40 0+1x39
		progressor_rpc_duration_seconds_count{method="Call",code="ok",instance="a"} 0+3000x80`,
		"ProgressorUnavailable"},
	{"one scan fails", `
		progressor_scan_errors_total{instance="a",scan="timers"} 0x74 1x5`, ""},
	{"scans fail", `
		progressor_scan_errors_total{instance="a",scan="timers"} 0x60 1+3x19`, "ProgressorCannotScan"},
	{"one result is retried", `
		progressor_result_retries_total{instance="a",sqlstate="53100"} 0x74 1x5`, ""},
	{"a result is retried until the disk has room", `
		progressor_result_retries_total{instance="a",sqlstate="53100"} 0x60 1+1x19`, "ProgressorResultsWait"},
	{"results take too long to store", `
		progressor_result_retries_total{instance="a",sqlstate="57014"} 0x60 1+1x19`, ""},
	{"10 tasks of 1000 fail", `
		progressor_task_completion_duration_ms_count{namespace="n",completion_type="error"} 0+30x80
		progressor_task_completion_duration_ms_count{namespace="n",completion_type="unlock"} 0+2970x80`, ""},
	{"a tenth of the tasks of a small namespace fail", `
		progressor_task_completion_duration_ms_count{namespace="n",completion_type="error"} 0+1x80
		progressor_task_completion_duration_ms_count{namespace="n",completion_type="unlock"} 0+9x80
		progressor_task_completion_duration_ms_count{namespace="m",completion_type="unlock"} 0+9000x80`,
		"ProgressorTasksFail"},
	{"2 requests per second of 1000 are refused", `
		progressor_requests_refused_total{instance="a",bound="backlog"} 0+60x80
		progressor_rpc_duration_seconds_count{method="Call",code="ok",instance="a"} 0+29940x80
		progressor_rpc_duration_seconds_count{method="Call",code="resource_exhausted",instance="a"} 0+60x80`, ""},
	{"2 requests per minute of 20 are refused", `
		progressor_requests_refused_total{instance="a",bound="backlog"} 0+1x80
		progressor_requests_refused_total{instance="a",bound="place"} 0x80
		progressor_rpc_duration_seconds_count{method="Call",code="ok",instance="a"} 0+9x80
		progressor_rpc_duration_seconds_count{method="Call",code="resource_exhausted",instance="a"} 0+1x80`,
		"ProgressorRefuses"},
	{"a client uses an unknown host name", `
		progressor_http_rejected_total{instance="a",reason="host"} 0+1x80
		progressor_rpc_duration_seconds_count{method="Call",code="ok",instance="a"} 0+30000x80`,
		"ProgressorHostsRejected"},
	{"a person has no token on an idle node", `
		progressor_auth_total{instance="a",scheme="none",outcome="missing"} 0+1x80
		progressor_auth_total{instance="a",scheme="key",outcome="ok"} 0x80`, ""},
	{"one of several clients has no valid token", `
		progressor_auth_total{instance="a",scheme="key",outcome="invalid"} 0+30x80
		progressor_auth_total{instance="a",scheme="key",outcome="ok"} 0+270x80`, "ProgressorAuthFails"},
	{"one authentication of 100 fails", `
		progressor_auth_total{instance="a",scheme="key",outcome="invalid"} 0+30x80
		progressor_auth_total{instance="a",scheme="key",outcome="ok"} 0+2970x80`, ""},
	{"someone guesses tokens of a busy node", `
		progressor_auth_total{instance="a",scheme="key",outcome="limited"} 0+30x80
		progressor_auth_total{instance="a",scheme="key",outcome="ok"} 0+30000x80`, "ProgressorAuthFails"},
	{"the keys of an issuer are read after a failure", `
		progressor_oidc_key_reads_total{instance="a",issuer="i",outcome="error"} 0x60 1x19
		progressor_oidc_key_reads_total{instance="a",issuer="i",outcome="ok"} 0x10 1x10 2x10 3x10 4x10 5x10 6x14`, ""},
	{"an issuer does not respond", `
		progressor_oidc_key_reads_total{instance="a",issuer="i",outcome="error"} 0x40 1+2x39
		progressor_oidc_key_reads_total{instance="a",issuer="i",outcome="ok"} 0x10 1x10 2x10 3x49`,
		"ProgressorIssuerUnreachable"},
	{"a person sends invalid requests to an idle node", `
		progressor_http_rejected_total{instance="a",reason="undecodable"} 0x80
		progressor_rpc_duration_seconds_count{method="Call",code="invalid_argument",instance="a"} 0+1x80`, ""},
	{"a node gets only requests that cannot be decoded", `
		progressor_http_rejected_total{instance="a",reason="undecodable"} 0+30x80`, "ProgressorRequestsInvalid"},
	{"a tenth of the requests are invalid", `
		progressor_http_rejected_total{instance="a",reason="undecodable"} 0x80
		progressor_rpc_duration_seconds_count{method="Call",code="ok",instance="a"} 0+270x80
		progressor_rpc_duration_seconds_count{method="Call",code="invalid_argument",instance="a"} 0+30x80`,
		"ProgressorRequestsInvalid"},
	{"a few connections are refused", `
		progressor_connections_refused_total{instance="a",bound="client_connections"} 0+30x80
		progressor_connections_opened_total{instance="a"} 0+3000x80`, ""},
	{"a client opens connections and closes none", `
		progressor_connections_refused_total{instance="a",bound="client_connections"} 0+30x80
		progressor_connections_refused_total{instance="a",bound="connections"} 0x80
		progressor_connections_opened_total{instance="a"} 0+3x80`, "ProgressorConnectionsRefused"},
	{"a few clients are too slow", `
		progressor_http_rejected_total{instance="a",reason="slow_body"} 0+30x80
		progressor_rpc_duration_seconds_count{method="Call",code="ok",instance="a"} 0+3000x80`, ""},
	{"request bodies never end", `
		progressor_http_rejected_total{instance="a",reason="slow_body"} 0+300x80
		progressor_rpc_duration_seconds_count{method="Call",code="ok",instance="a"} 0+3000x80`,
		"ProgressorClientsStall"},
	{"one lease of 1000 is lost", `
		progressor_job_lease_losses_total{namespace="n",name="j"} 0x70 1x9
		progressor_job_duration_seconds_count{namespace="n",name="j"} 0+33x80`, ""},
	{"the first attempt of a job is lost", `
		progressor_job_lease_losses_total{namespace="n",name="j"} 0x70 1x9
		progressor_job_duration_seconds_count{namespace="n",name="j"} _x70 1x9`, "ProgressorLeasesLost"},
	{"one task becomes a zombie", `
		progressor_zombies_total{namespace="n"} 0x70 1x9
		progressor_task_completion_duration_ms_count{namespace="n",completion_type="unlock"} 0+30000x80`,
		"ProgressorZombies"},
	{"one change becomes a dead letter", `
		progressor_sink_dead_letters_total{namespace="n",sink_id="s"} 0x70 1x9`, "ProgressorSinkDeadLetters"},
}

func TestAlerts(t *testing.T) {
	promQL := parser.NewParser(parser.Options{})
	rules, errs := rulefmt.ParseFile("../../deploy/prometheus/alerts.yaml", false, model.UTF8Validation, promQL,
		slog.Default())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, test := range alertTests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, Parser: promQL})
			defer engine.Close()
			scraped := load(t, promQL, test.series)
			var firing []string
			for _, rule := range rules.Groups[0].Rules {
				begin, end := time.Unix(0, 0), time.Unix(0, 0).Add((scrapes-1)*interval)
				query, err := engine.NewRangeQuery(t.Context(), scraped, nil, rule.Expr, begin, end, interval)
				if err != nil {
					t.Fatal(err)
				}
				result, err := query.Exec(t.Context()).Matrix()
				if err != nil {
					t.Fatalf("%s: %v", rule.Alert, err)
				}
				if slices.ContainsFunc(result, func(s promql.Series) bool {
					return activeFor(s, end) >= time.Duration(rule.For)
				}) {
					firing = append(firing, rule.Alert)
				}
			}
			if got := strings.Join(firing, " "); got != test.want {
				t.Errorf("%q fire, want %q", got, test.want)
			}
		})
	}
}

// activeFor returns how long s has existed without a gap until end, or a negative duration if it
// has no sample at end.
func activeFor(s promql.Series, end time.Time) time.Duration {
	active := -interval
	for at := end; len(s.Floats) > 0 && s.Floats[len(s.Floats)-1].T == at.UnixMilli(); at = at.Add(-interval) {
		s.Floats = s.Floats[:len(s.Floats)-1]
		active += interval
	}
	return active
}

// load returns a database with the series of a text, one per line.
func load(t *testing.T, promQL parser.Parser, text string) storage.Queryable {
	t.Helper()
	var all []storage.Series
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, sequence, err := promQL.ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		chunk := chunkenc.NewXORChunk()
		samples, err := chunk.Appender()
		if err != nil {
			t.Fatal(err)
		}
		for n, v := range sequence {
			if !v.Omitted {
				samples.Append(0, (time.Duration(n) * interval).Milliseconds(), v.Value)
			}
		}
		all = append(all, &storage.SeriesEntry{Lset: name, SampleIteratorFn: chunk.Iterator})
	}
	find := func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &seriesSet{}
		for _, s := range all {
			differs := func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }
			if !slices.ContainsFunc(matchers, differs) {
				found.rest = append(found.rest, s)
			}
		}
		return found
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: find}}
}

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	current storage.Series
	rest    []storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.current, s.rest = s.rest[0], s.rest[1:]
	return true
}

func (s *seriesSet) At() storage.Series              { return s.current }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }
