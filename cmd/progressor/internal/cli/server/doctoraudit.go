package server

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/storage"
)

// lateSeal is how long an audit entry may wait for the hash chain. A node adds new entries every
// few seconds.
const lateSeal = 10 * time.Minute

// checkAudit verifies the hash chain of the audit.
func (e *examination) checkAudit(ctx context.Context, conn *pgx.Conn, known *storage.AuditHead) error {
	if e.Schema.Version == 0 {
		return nil
	}
	chain, err := storage.VerifyAudit(ctx, conn, known)
	if err != nil {
		return err
	}
	e.Audit = &chain
	if chain.Fault != "" {
		e.violate("compare the audit with a backup, and find out who has the rights of its owner", "audit: %s",
			chain.Fault)
	}
	if known != nil && chain.KnownBefore {
		e.warn("use a newer entry for --audit-head",
			"the entry at position %d was deleted after its retention: --audit-head was not checked", known.Position)
	}
	if chain.WaitingFor > lateSeal.Seconds() {
		e.warn("check that a node runs, and look for \"seal audit rows\" in its log",
			"%s not in the hash chain of the audit, the oldest for %s",
			output.Counted(int(chain.Waiting), "command"), span(chain.WaitingFor))
	}
	return nil
}

// auditRole describes what a database role may do with the audit.
type auditRole struct {
	name      string
	writesAll bool // it has pg_write_all_data, or can SET ROLE to it
	changes   bool // the role may change entries or the hash chain
	cannotAdd bool // engines use the role, and it may add entries, but not to the hash chain
}

// findAuditRoles returns the roles of engines and of this session, except for owners and
// superusers.
const findAuditRoles = `
WITH used AS (
  SELECT a.usesysid AS oid, true AS engine FROM pg_stat_activity a
   WHERE a.datname = current_database()
     AND a.application_name = 'progressor lane'
   UNION ALL
  SELECT r.oid, false FROM pg_roles r WHERE r.rolname = session_user),
audit AS (
  SELECT c.oid, c.relowner, 'progressor.audit_chain'::regclass::oid AS chain
    FROM pg_class c WHERE c.oid = 'progressor.audit'::regclass)
SELECT r.rolname::text,
       EXISTS (
         SELECT FROM pg_roles w
          WHERE w.rolname = 'pg_write_all_data'
            AND pg_has_role(r.oid, w.oid, 'MEMBER')),
       has_table_privilege(r.oid, audit.oid, 'UPDATE, DELETE, TRUNCATE')
         OR has_any_column_privilege(r.oid, audit.oid, 'UPDATE')
         OR has_column_privilege(r.oid, audit.oid, 'chain_position', 'INSERT')
         OR has_table_privilege(r.oid, audit.chain, 'INSERT, UPDATE, DELETE, TRUNCATE'),
       bool_or(used.engine)
         AND has_column_privilege(r.oid, audit.oid, 'actor', 'INSERT')
         AND NOT (has_function_privilege(r.oid, 'progressor.seal_audit(integer)', 'EXECUTE')
                  AND has_function_privilege(r.oid, 'progressor.forget_audit(integer)', 'EXECUTE'))
  FROM used
  JOIN pg_roles r ON r.oid = used.oid
 CROSS JOIN audit
 WHERE NOT r.rolsuper
   AND NOT pg_has_role(r.oid, audit.relowner, 'USAGE')
 GROUP BY r.oid, r.rolname, audit.oid, audit.chain
 ORDER BY r.rolname`

// checkAuditRoles warns about roles that may change the audit, and about roles that cannot add to
// its hash chain.
func (e *examination) checkAuditRoles(ctx context.Context, conn *pgx.Conn) error {
	if e.Schema.Version == 0 {
		return nil
	}
	rows, err := conn.Query(ctx, findAuditRoles)
	if err != nil {
		return err
	}
	roles, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r auditRole, err error) {
		return r, row.Scan(&r.name, &r.writesAll, &r.changes, &r.cannotAdd)
	})
	for _, r := range roles {
		name := pgx.Identifier{r.name}.Sanitize()
		switch {
		case r.writesAll:
			e.warn("REVOKE pg_write_all_data FROM "+name+", and give it the rights in docs/operations.md#roles",
				"the role %s can change the audit, because it has pg_write_all_data", r.name)
		case r.changes:
			e.warn("give it only the rights in docs/operations.md#roles", "the role %s can change the audit", r.name)
		}
		if r.cannotAdd {
			e.warn("GRANT EXECUTE ON FUNCTION progressor.erase_audit, progressor.seal_audit, "+
				"progressor.forget_audit TO "+name, "engines with the role %s cannot add entries to the hash chain of "+
				"the audit, and cannot delete old ones", r.name)
		}
	}
	return err
}

// auditText describes the hash chain in one line.
func (e *examination) auditText() string {
	if e.Audit == nil {
		return "not checked"
	}
	text := fmt.Sprintf("%s in the hash chain, %d not yet", output.Counted(int(e.Audit.Entries), "command"),
		e.Audit.Waiting)
	if head := e.Audit.Head; head.Position > 0 {
		text += fmt.Sprintf("; head %d:%s", head.Position, head.Hash)
	}
	return text
}

// parseAuditHead parses POSITION:HASH, as doctor prints it. It returns nil for "".
func parseAuditHead(text string) (*storage.AuditHead, error) {
	if text == "" {
		return nil, nil
	}
	position, hash, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(position, 10, 64)
	raw, hexErr := hex.DecodeString(hash)
	if err != nil || hexErr != nil || n < 1 || len(raw) != 32 {
		return nil, fmt.Errorf("--audit-head: must be POSITION:HASH as doctor prints it (got %q)", text)
	}
	return &storage.AuditHead{Position: n, Hash: hex.EncodeToString(raw)}, nil
}
