package storage

import (
	"context"
	"encoding/json"
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

// AuditRecord is an audit entry for an operator's command. It is stored in the transaction of the
// command.
type AuditRecord struct {
	Method  string
	By      process.Actor
	Details map[string]string // in addition to By; empty values are omitted
	Change  ConfigChange      // added to the details
}

// noted adds an audit entry to an item if an operator sent the command.
func (i *item) noted(method, reason string, by []process.Actor) {
	if len(by) > 0 {
		i.audit = &AuditRecord{Method: method, By: by[0], Details: map[string]string{"reason": reason}}
	}
}

// actor returns the operator who sent the command, or "".
func (i *item) actor() string {
	if i.audit == nil {
		return ""
	}
	return i.audit.By.Name
}

// details returns the other fields of the entry as JSON, or "" if there are none.
func (n *AuditRecord) details() string {
	details := map[string]any{}
	if n.By.Via != "" {
		details["via"] = n.By.Via
	}
	if n.By.RequestID != "" {
		details["request_id"] = n.By.RequestID
	}
	for name, value := range n.Details {
		if value != "" {
			details[name] = value
		}
	}
	n.Change.add(details)
	if len(details) == 0 {
		return ""
	}
	text, _ := json.Marshal(details) // a map of strings and decoded JSON
	return string(text)
}

// auditRecords holds the entries of one flush.
type auditRecords struct{ arg dbsqlc.InsertAuditsParams }

func (o *auditRecords) add(i *item) {
	o.arg.Append(dbsqlc.InsertAuditsItem{
		Key: i.key, Method: i.audit.Method, Actor: i.audit.By.Name, Source: i.audit.By.Source,
		Details: i.audit.details(),
	})
}

// stages returns the statement for the entries. It follows the statements of the commands.
func (o *auditRecords) stages(s *Store) []stage {
	if len(o.arg.Methods) == 0 {
		return nil
	}
	return []stage{func(ctx context.Context, db DB) error { return s.q.InsertAudits(ctx, db, o.arg) }}
}

// note contains the audit data of a command that does not use a lane.
type note struct {
	method, namespace, subject string
	change                     *ConfigChange // set by the command; nil if it changes no configuration
}

// audited runs a command. If an operator sent it, audited adds an audit entry in the same
// transaction.
func (s *Store) audited(ctx context.Context, n note, by []process.Actor, carryOut func(DB) error) error {
	return s.write(ctx, func(conn *pgx.Conn) error {
		if len(by) == 0 {
			return carryOut(conn)
		}
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := carryOut(tx); err != nil {
				return err
			}
			if n.change == nil {
				n.change = &ConfigChange{}
			}
			return n.change.Audit(ctx, tx, n.method, n.namespace, n.subject, by)
		})
	})
}

// Record adds the entry in the transaction of a command that does not use a lane.
func (n *AuditRecord) Record(ctx context.Context, db DB, namespace, subject string) error {
	return dbsqlc.New().InsertAudit(ctx, db, dbsqlc.InsertAuditParams{
		Actor: n.By.Name, Source: n.By.Source, Method: n.Method, Namespace: namespace, Subject: subject,
		Details: n.details(),
	})
}

// AuditCommand adds an audit entry in the transaction of a command if an operator sent it.
func AuditCommand(ctx context.Context, db DB, method, namespace, subject string, by []process.Actor) error {
	return ConfigChange{}.Audit(ctx, db, method, namespace, subject, by)
}

// ForgetAudit deletes entries whose retention is over.
func (s *Store) ForgetAudit(ctx context.Context) error {
	_, err := s.q.ForgetAudit(ctx, s.general, forgetBatch)
	return mapped("delete old audit rows", err)
}

// sealBatch is the number of entries that a transaction adds to the hash chain.
const sealBatch = 1000

// SealAudit adds committed entries to the hash chain of the audit. more reports whether there may
// be more.
func (s *Store) SealAudit(ctx context.Context) (more bool, err error) {
	n, err := s.q.SealAudit(ctx, s.general, sealBatch)
	return n == sealBatch, mapped("seal audit rows", err)
}
