package engine

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// ListAudit lists what operators have done, the newest first; namespace "": in all, and to nodes. filter: comparisons of actor, method,
// subject and time, joined by AND. A page may be short or empty, and still have a next. PageSize: default 100, at most 1,000.
func (e *Engine) ListAudit(ctx context.Context, namespace, filter string, pageSize int, pageToken string) ([]*progressorv1.AuditEntry, string, error) {
	if err := e.admit(); err != nil {
		return nil, "", err
	}
	defer e.leave()
	if _, err := e.namesOf(ctx, namespace); err != nil {
		return nil, "", err
	}
	wanted, err := parseAuditFilter(filter)
	if err != nil {
		return nil, "", err
	}
	before := int64(math.MaxInt64)
	if pageToken != "" {
		if before, err = strconv.ParseInt(pageToken, 10, 64); err != nil || before < 1 {
			return nil, "", &process.InvalidError{Field: "page_token", Message: "it is not of an audit"}
		}
	}
	if pageSize <= 0 {
		pageSize = 100
	}
	pageSize = min(pageSize, 1000)
	var list []*progressorv1.AuditEntry
	for read := 0; read < maxListed; {
		rows, err := e.store.ListAudit(ctx, namespace, before, 1000)
		if err != nil {
			return nil, "", err
		}
		read += len(rows)
		for n := range rows {
			if len(list) == pageSize {
				return list, strconv.FormatInt(before, 10), nil
			}
			before = rows[n].AuditID
			if !wanted.matches(&rows[n]) {
				continue
			}
			entry, err := wire.AuditEntry(&rows[n])
			if err != nil {
				return nil, "", err
			}
			list = append(list, entry)
		}
		if len(rows) < 1000 {
			return list, "", nil
		}
	}
	return list, strconv.FormatInt(before, 10), nil
}

// maxListed is how many rows one page of an audit reads at most; one that found less says where to go on.
const maxListed = 20_000

// auditFilter are comparisons that all have to hold.
type auditFilter []auditCondition

type auditCondition struct {
	field, operator, text string
	prefix                bool // text is the beginning
	time                  time.Time
}

// One comparison: a field, an operator, and a value that is quoted or a single word.
var auditComparison = regexp.MustCompile(`^\s*([a-z_]+)\s*(>=|<=|!=|=|>|<)\s*(?:"((?:[^"\\]|\\.)*)"|([^\s"]+))\s*(?:$|AND\b)`)

func parseAuditFilter(text string) (auditFilter, error) {
	var filter auditFilter
	wrong := func(format string, args ...any) (auditFilter, error) {
		return nil, &process.InvalidError{Field: "filter", Message: fmt.Sprintf(format, args...)}
	}
	for rest := text; strings.TrimSpace(rest) != ""; {
		m := auditComparison.FindStringSubmatch(rest)
		if len(m) == 0 || strings.HasSuffix(m[0], "AND") && strings.TrimSpace(rest[len(m[0]):]) == "" {
			return wrong("want comparisons joined by AND, as in method = \"RemoveProcess\" AND time > \"2026-11-01T00:00:00Z\"")
		}
		rest = rest[len(m[0]):]
		c := auditCondition{field: m[1], operator: m[2]}
		value := m[3] + m[4]
		switch c.field {
		case "time":
			var err error
			if c.time, err = time.Parse(time.RFC3339Nano, value); err != nil {
				return wrong("time: want a time such as \"2026-11-01T00:00:00Z\", not %q", value)
			}
		case "actor", "method", "subject":
			if c.operator != "=" && c.operator != "!=" {
				return wrong("%s takes = and !=, not %s", c.field, c.operator)
			}
			if strings.HasSuffix(value, "*") && !strings.HasSuffix(value, `\*`) {
				c.prefix, value = true, strings.TrimSuffix(value, "*")
			}
			c.text = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\*`, `*`).Replace(value)
		default:
			return wrong("there is no field %q: want actor, method, subject or time", c.field)
		}
		filter = append(filter, c)
	}
	return filter, nil
}

func (f auditFilter) matches(row *storage.AuditEntry) bool {
	for _, c := range f {
		if !c.holds(row) {
			return false
		}
	}
	return true
}

func (c *auditCondition) holds(row *storage.AuditEntry) bool {
	if c.field == "time" {
		order := row.Time.Compare(c.time)
		switch c.operator {
		case "=":
			return order == 0
		case "!=":
			return order != 0
		case ">":
			return order > 0
		case ">=":
			return order >= 0
		case "<":
			return order < 0
		}
		return order <= 0
	}
	have := map[string]string{"actor": row.Actor, "method": row.Method, "subject": row.Subject}[c.field]
	same := have == c.text || c.prefix && strings.HasPrefix(have, c.text)
	return same == (c.operator == "=")
}
