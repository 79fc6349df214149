package search

import (
	"context"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// audits describes the fields of audit entries for filters. In its SQL, a is a row of the table
// audit.
var audits = &table{
	fields: []*field{
		textField("actor", "a.actor"), textField("method", "a.method"), textField("subject", "a.subject"),
		{name: "time", values: isTime, compare: inOrder("a.time", "$?::timestamptz")},
	},
	example: "method = RemoveProcess", text: "subject = ",
}

// AuditQuery selects a page of audit entries, newest first.
type AuditQuery struct {
	Namespace string           // "" for all entries, including those without a namespace
	Visible   process.Patterns // only entries of namespaces that match; nil for all entries
	Filter    string           // filter on actor, method, subject and time
	PageSize  int              // at most MaxPageSize; 0 means DefaultPageSize
	PageToken string           // token from the previous page; "" for the first
}

// AuditPage is a page of audit entries. It may have fewer entries than requested, or none, and
// still have a next page.
type AuditPage struct {
	Entries       []storage.AuditEntry
	NextPageToken string // "" if this is the last page
}

// ListAudit returns a page of audit entries.
func ListAudit(ctx context.Context, store *storage.Store, q AuditQuery) (AuditPage, error) {
	return listAuditWithin(ctx, store, q, usual.scanned, storage.ListBytes)
}

// listAuditWithin is ListAudit with two limits: it reads at most window entries, and the page ends
// with the entry at which the details of all entries together exceed limit, in bytes.
func listAuditWithin(ctx context.Context, store *storage.Store, q AuditQuery, window, limit int) (AuditPage, error) {
	filter, err := parse(q.Filter, audits)
	if err != nil {
		return AuditPage{}, err
	}
	before := int64(math.MaxInt64)
	if q.PageToken != "" {
		if before, err = strconv.ParseInt(q.PageToken, 10, 64); err != nil || before < 1 {
			return AuditPage{}, process.InvalidPageToken()
		}
	}
	size := pageSize(q.PageSize)
	var rows []auditRow
	err = store.Search(ctx, "list audit", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, scanSettings); err != nil {
			return err
		}
		rows, err = query[auditRow](ctx, tx, auditStatement(q, filter, before, window, size, limit))
		return err
	})
	if err != nil {
		return AuditPage{}, err
	}
	var page AuditPage
	bytes := 0
	for n := range rows {
		r := &rows[n]
		if r.Matches && len(page.Entries) == size {
			page.NextPageToken = strconv.FormatInt(before, 10)
			break
		}
		if r.Matches {
			page.Entries = append(page.Entries, r.AuditEntry)
		}
		bytes += len(r.Details)
		if before = r.AuditID; r.N == int64(window) || bytes > limit {
			page.NextPageToken = strconv.FormatInt(before, 10)
		}
	}
	return page, nil
}

// auditRow is a row of auditStatement.
type auditRow struct {
	storage.AuditEntry
	N       int64 // number of the row in the window, from 1
	Matches bool  // the entry matches the filter
}

// auditStatement selects the matching entries among the newest window entries whose ID is smaller
// than before. It also returns the last entry of the window, even if it does not match, because the
// next page begins after it. It returns no more entries when their details together exceed limit,
// in bytes.
func auditStatement(q AuditQuery, filter Filter, before int64, window, size, limit int) *statement {
	s := &statement{}
	s.add(`SELECT a.audit_id, a.time, a.actor, a.source, a.method, a.namespace, a.subject, a.details, a.n, a.matches
  FROM (SELECT a.*, sum(a.bytes) OVER (ORDER BY a.audit_id DESC ROWS UNBOUNDED PRECEDING) - a.bytes AS bytes_before
  FROM (SELECT a.*, coalesce(octet_length(a.details::text), 0) AS bytes
  FROM (SELECT a.*, row_number() OVER (ORDER BY a.audit_id DESC) AS n, `)
	s.filter(filter)
	s.add(` AS matches FROM (SELECT * FROM audit a WHERE a.audit_id < $?::bigint`, before)
	if q.Namespace != "" {
		s.add(` AND a.namespace = $?::text`, q.Namespace)
	}
	if q.Visible != nil {
		s.add(` AND a.namespace LIKE ANY ($?::text[])`, q.Visible.Like())
	}
	s.add(` ORDER BY a.audit_id DESC LIMIT $?::bigint) a) a`, window)
	s.add(` WHERE a.matches OR a.n = $?::bigint ORDER BY a.audit_id DESC LIMIT $?::bigint) a) a`, window, size+1)
	s.add(` WHERE a.bytes_before <= $?::bigint ORDER BY a.audit_id DESC`, limit)
	return s
}
