package search

import (
	"context"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// audits are the orders of operators, rows a of audit.
var audits = &table{
	fields: []*field{
		{name: "actor", compare: map[string]string{equals: "a.actor = $?::text"}, prefix: "starts_with(a.actor, $?::text)"},
		{name: "method", compare: map[string]string{equals: "a.method = $?::text"}, prefix: "starts_with(a.method, $?::text)"},
		{name: "subject", compare: map[string]string{equals: "a.subject = $?::text"}, prefix: "starts_with(a.subject, $?::text)"},
		{name: "time", values: isTime, compare: inOrder("a.time", "$?::timestamptz")},
	},
	example: "method = RemoveProcess", text: "subject = ",
}

// AuditQuery is a page of what operators have done, the newest first.
type AuditQuery struct {
	Namespace string // "": all, and what was about none
	Filter    string // over actor, method, subject and time
	PageSize  int    // at most MaxPageSize; 0: DefaultPageSize
	PageToken string // of the page before; "": the first
}

// AuditPage is a part of the orders. It may hold fewer than asked for, or none, and still have a next one.
type AuditPage struct {
	Entries       []storage.AuditEntry
	NextPageToken string // "": the list ends here
}

// ListAudit reads a page.
func ListAudit(ctx context.Context, store *storage.Store, q AuditQuery) (AuditPage, error) {
	return listAuditWithin(ctx, store, q, usual.scanned)
}

// listAuditWithin reads as many orders as window at most.
func listAuditWithin(ctx context.Context, store *storage.Store, q AuditQuery, window int) (AuditPage, error) {
	filter, err := parse(q.Filter, audits)
	if err != nil {
		return AuditPage{}, err
	}
	before := int64(math.MaxInt64)
	if q.PageToken != "" {
		if before, err = strconv.ParseInt(q.PageToken, 10, 64); err != nil || before < 1 {
			return AuditPage{}, &process.InvalidError{Field: "page_token", Message: "it is not of an audit"}
		}
	}
	size := DefaultPageSize
	if q.PageSize > 0 {
		size = min(q.PageSize, MaxPageSize)
	}
	var rows []auditRow
	err = store.Search(ctx, "list audit", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, scanSettings); err != nil {
			return err
		}
		rows, err = query[auditRow](ctx, tx, auditStatement(q.Namespace, filter, before, window, size))
		return err
	})
	if err != nil {
		return AuditPage{}, err
	}
	var page AuditPage
	for n := range rows {
		r := &rows[n]
		if r.Matches && len(page.Entries) == size {
			page.NextPageToken = strconv.FormatInt(before, 10)
			break
		}
		if r.Matches {
			page.Entries = append(page.Entries, r.AuditEntry)
		}
		if before = r.AuditID; r.N == int64(window) {
			page.NextPageToken = strconv.FormatInt(before, 10)
		}
	}
	return page, nil
}

type auditRow struct {
	storage.AuditEntry
	N       int64 // its number in the window that was read
	Matches bool
}

// auditStatement reads the newest orders before one. The window's last row comes too if it was reached, also where it does not match:
// behind it the next page begins.
func auditStatement(namespace string, filter Filter, before int64, window, size int) *statement {
	s := &statement{}
	s.add(`SELECT a.audit_id, a.time, a.actor, a.source, a.method, a.namespace, a.subject, a.details, a.n, a.matches
  FROM (SELECT a.*, row_number() OVER (ORDER BY a.audit_id DESC) AS n, `)
	s.filter(filter)
	s.add(` AS matches FROM (SELECT * FROM audit a WHERE a.audit_id < $?::bigint`, before)
	if namespace != "" {
		s.add(` AND a.namespace = $?::text`, namespace)
	}
	s.add(` ORDER BY a.audit_id DESC LIMIT $?::bigint) a) a`, window)
	s.add(` WHERE a.matches OR a.n = $?::bigint ORDER BY a.audit_id DESC LIMIT $?::bigint`, window, size+1)
	return s
}
