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

// lookAtAudit verifies the hash chain of the audit.
func (e *examination) lookAtAudit(ctx context.Context, conn *pgx.Conn, known *storage.AuditHead) error {
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

// auditText describes the chain in a line.
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
