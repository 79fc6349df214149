package storage

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// AuditEntry is a row of audit.
type AuditEntry struct {
	AuditID                                   int64
	Time                                      time.Time
	Actor, Source, Method, Namespace, Subject string
	Details                                   json.RawMessage
}

// AuditRetention is how long an order of an operator is kept.
const AuditRetention = 90 * 24 * time.Hour

// Note is what is to be noted of an operator's order, in the transaction that carries it out.
type Note struct {
	Method  string
	By      process.Actor
	Details map[string]string // beside what By tells; values that are empty are left out
}

// noted has an item's order noted, where somebody is named who gave it.
func (i *item) noted(method, reason string, by []process.Actor) {
	if len(by) > 0 {
		i.audit = &Note{Method: method, By: by[0], Details: map[string]string{"reason": reason}}
	}
}

// actor is who gave an item's order, if that is known.
func (i *item) actor() string {
	if i.audit == nil {
		return ""
	}
	return i.audit.By.Name
}

// details is what else a note tells, as JSON; "": nothing.
func (n *Note) details() string {
	told := map[string]string{"via": n.By.Via}
	maps.Copy(told, n.Details)
	maps.DeleteFunc(told, func(_, value string) bool { return value == "" })
	if len(told) == 0 {
		return ""
	}
	text, _ := json.Marshal(told) // a map of strings
	return string(text)
}

// auditRecords are those of one flush.
type auditRecords struct{ arg dbsqlc.InsertAuditsParams }

func (o *auditRecords) add(i *item) {
	a := &o.arg
	a.Namespaces = append(a.Namespaces, i.key.Namespace)
	a.ProcessIds = append(a.ProcessIds, i.key.ProcessID)
	a.Methods = append(a.Methods, i.audit.Method)
	a.Actors = append(a.Actors, i.audit.By.Name)
	a.Sources = append(a.Sources, i.audit.By.Source)
	a.Details = append(a.Details, i.audit.details())
}

// stages stands behind the statements that carry the orders out.
func (o *auditRecords) stages(s *Store) []stage {
	if len(o.arg.Methods) == 0 {
		return nil
	}
	return []stage{func(ctx context.Context, db DB) error { return s.q.InsertAudits(ctx, db, o.arg) }}
}

// note is what is noted of an order that goes through no lane.
type note struct{ method, namespace, subject string }

// audited carries an order out, and notes it in the same transaction where somebody is named who gave it.
func (s *Store) audited(ctx context.Context, n note, by []process.Actor, carryOut func(DB) error) error {
	return s.write(ctx, func(conn *pgx.Conn) error {
		if len(by) == 0 {
			return carryOut(conn)
		}
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := carryOut(tx); err != nil {
				return err
			}
			return AuditCommand(ctx, tx, n.method, n.namespace, n.subject, by)
		})
	})
}

// AuditCommand notes an order in the transaction that carries it out, where somebody is named who gave it.
func AuditCommand(ctx context.Context, db DB, method, namespace, subject string, by []process.Actor) error {
	if len(by) == 0 {
		return nil
	}
	return dbsqlc.New().InsertAudit(ctx, db, dbsqlc.InsertAuditParams{Actor: by[0].Name, Source: by[0].Source, Method: method, Namespace: namespace, Subject: subject})
}

// ForgetAudit drops orders that are past their retention.
func (s *Store) ForgetAudit(ctx context.Context) error {
	return mapped("forget audit", s.q.ForgetAudit(ctx, s.general, dbsqlc.ForgetAuditParams{RetentionUs: AuditRetention.Microseconds(), Lim: forgetBatch}))
}
