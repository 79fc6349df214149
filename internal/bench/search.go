package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The statements that insert the searched processes. 1% of them are in ERROR, 0.5% are SUSPENDED,
// and 0.5% are COMPLETED. 0.1% belong to each tenant, 20% to each region, and 0.01% to VIPs. One
// process was created per second, the last one now.
const (
	fillSearched = `
INSERT INTO processes (namespace, process_id, status, previous_status, status_changed_time, attention,
  attention_time, detail, corrupted_by, created_time,
                       aux_state, metadata)
SELECT $1, 'p-' || substr(md5(n::text), 1, 16), s,
       CASE s WHEN 'RUNNING' THEN 'INIT' ELSE 'RUNNING' END::process_status, t, NULLIF(s, 'RUNNING'),
       CASE WHEN s <> 'RUNNING' THEN t END,
       CASE s WHEN 'ERROR' THEN CASE n % 300 WHEN 0 THEN 'out of stock' ELSE 'damaged goods' END END,
       CASE s WHEN 'ERROR' THEN 0 END, t, $5,
       jsonb_build_object('tenant', 't' || n % 1000,
         'region', (ARRAY['eu', 'us', 'asia', 'africa', 'oceania'])[n % 5 + 1], 'order', n,
         'amount', n * 7919 % 10000, 'customer', jsonb_build_object('vip', n % 10000 = 7),
         'tags', jsonb_build_array('web', 'batch-' || n / 500))
  FROM (SELECT n, now() - ($4::bigint - n) * interval '1 second' AS t,
               CASE WHEN n % 100 = 0 THEN 'ERROR' WHEN n % 200 = 33 THEN 'SUSPENDED'
                   WHEN n % 200 = 77 THEN 'COMPLETED' ELSE 'RUNNING' END::process_status AS s
          FROM generate_series($2::bigint, $3::bigint) AS n) x`
	fillSearchedCounts = `
INSERT INTO status_counts (namespace, status, n)
SELECT namespace, coalesce(attention, 'RUNNING'), count(*) FROM processes
  GROUP BY namespace, coalesce(attention, 'RUNNING')`
)

// searches returns the measured lists: without a filter, with filters that match many, few or one
// of the processes, with filters that use an index, and with filters that need a scan.
func searches(now time.Time, processes int) []*progressorv1.ListProcessesRequest {
	middle := now.Add(-time.Duration(processes/2) * time.Second).UTC()
	list := []struct{ filter, order string }{
		{"", ""},
		{"status = ERROR", ""},
		{"status = ERROR AND detail:stock", "status_changed_time desc"},
		{"metadata.tenant = t7", ""},
		{"metadata.region = eu", "process_id"},
		{"metadata.order = " + strconv.Itoa(processes/3), "created_time"},
		{"metadata.customer.vip = true OR metadata.tags:batch-1", ""},
		{`process_id = "p-0f*" AND status != COMPLETED`, "process_id desc"},
		{fmt.Sprintf("created_time > %q AND created_time < %q", middle.Format(time.RFC3339),
			middle.Add(time.Hour).Format(time.RFC3339)), ""},
		{"metadata.amount < 3 AND NOT status = ERROR", ""},
	}
	var requests []*progressorv1.ListProcessesRequest
	for _, one := range list {
		requests = append(requests,
			&progressorv1.ListProcessesRequest{Namespace: namespaceName, Filter: one.filter, OrderBy: one.order})
	}
	return requests
}

// search measures each list of searches in turn. A single client reads its pages.
func (r *runner) search(ctx context.Context, v variant) error {
	var rows []*Row
	checked := v.row(subjectEngine)
	err := r.onEngine(ctx, v.history, processor.BenchNoop(), checked, func(d *scratch, s *site) (acknowledged, error) {
		if err := r.fillSearched(ctx, d); err != nil {
			return nil, err
		}
		if err := r.settle(ctx, d.analyze); err != nil {
			return nil, err
		}
		for _, request := range searches(time.Now(), r.command.Processes) {
			row := v.row(subjectEngine)
			r.step("search: " + request.GetFilter())
			if err := r.pages(ctx, s, request, row); err != nil {
				return nil, fmt.Errorf("%s: %w", request.GetFilter(), err)
			}
			rows = append(rows, row)
		}
		return acknowledged{}, nil
	})
	for _, row := range rows {
		row.Checked = checked.Checked
	}
	r.report.Rows = append(r.report.Rows, rows...)
	return err
}

func (r *runner) fillSearched(ctx context.Context, d *scratch) error {
	state := newPayload(ctx).state
	total := r.command.Processes
	for done := 0; done < total; done += fillChunk {
		r.step(fmt.Sprintf("search, filling: %d of %d processes", done, total))
		if err := d.execute(ctx,
			statement{fillSearched, []any{namespaceName, done + 1, min(done+fillChunk, total), total,
				state}}); err != nil {
			return err
		}
	}
	return d.execute(ctx, statement{fillSearchedCounts, nil})
}

// pages reads the pages of a list until the duration has passed, and measures each of them. After
// the last page, it starts from the first one.
func (r *runner) pages(ctx context.Context, s *site, request *progressorv1.ListProcessesRequest, row *Row) error {
	var latencies histogram
	found := 0
	longest := time.Duration(0)
	began := time.Now()
	for time.Since(began) < r.command.Duration {
		start := time.Now()
		list, next, err := s.engine.ListProcesses(ctx, request)
		if err != nil {
			return err
		}
		took := time.Since(start)
		latencies.add(took)
		longest = max(longest, took)
		found += len(list)
		request.PageToken = next
	}
	row.fill(int64(latencies.n), time.Since(began), &latencies, spent{})
	row.Note = fmt.Sprintf("%q", request.GetFilter())
	if request.GetOrderBy() != "" {
		row.Note += " by " + request.GetOrderBy()
	}
	row.Note += fmt.Sprintf(", %.1f found per page, longest %.1f ms", float64(found)/float64(latencies.n),
		millis(longest))
	return nil
}
