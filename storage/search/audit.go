package search

import (
	"context"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// audits describes audit entries, rows a of audit.
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
	Visible   process.Patterns // patterns of their namespaces; nil for all
	Filter    string           // over actor, method, subject and time
	PageSize  int              // at most MaxPageSize; 0 means DefaultPageSize
	PageToken string           // token from the previous page; "" for the first
}

// AuditPage is a page of audit entries. It may have fewer entries than requested, or none, and
// still have a next page.
type AuditPage struct {
	Entries       []storage.AuditEntry
	NextPageToken string // "" if this is the last page
}

// ListAudit returns a page.
func ListAudit(ctx context.Context, store *storage.Store, q AuditQuery) (AuditPage, error) {
	return listAuditWithin(ctx, store, q, usual.scanned, storage.ListBytes)
}

// listAuditWithin reads at most window entries. The page ends with the entry whose details exceed
// limit, in bytes.
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

type auditRow struct {
	storage.AuditEntry
	N       int64 // number of the row in the window
	Matches bool
}

// auditStatement reads the newest entries before one. The last row of the window is included if it
// was reached, even if it does not match, because the next page begins after it. It reads no more
// entries after the details exceed limit, in bytes.
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
