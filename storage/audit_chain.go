package storage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// AuditHead identifies an entry of the hash chain of the audit. The hash covers this entry and all
// earlier ones.
type AuditHead struct {
	Position int64  `json:"position"`
	Hash     string `json:"hash"` // hexadecimal; "" if no entry is in the chain
}

// AuditChain is the result of VerifyAudit.
type AuditChain struct {
	Entries     int64     `json:"entries"`      // correct entries in the chain
	Erased      int64     `json:"erased"`       // entries whose subject or details EraseProcess has erased
	Waiting     int64     `json:"waiting"`      // entries that are not in the chain yet, counted up to maxWaitingAudit
	WaitingFor  float64   `json:"waiting_for"`  // age of the oldest of these entries, in seconds
	Removed     int64     `json:"removed"`      // position of the last entry deleted after its retention
	Head        AuditHead `json:"head"`         // the last correct entry
	Fault       string    `json:"fault"`        // what is wrong with the first incorrect entry, or ""
	KnownBefore bool      `json:"known_before"` // the known entry was deleted after its retention
}

const (
	// auditBatch is the number of entries that VerifyAudit reads in a transaction.
	auditBatch = 500
	// maxWaitingAudit limits the number of counted entries that are not in the chain.
	maxWaitingAudit = 10_000
)

// VerifyAudit checks the hash chain of the audit from its start, in short transactions. It stops at
// the first incorrect entry. If known is not nil, the chain must contain this entry. The
// search_path of the connection must be progressor.
func VerifyAudit(ctx context.Context, conn *pgx.Conn, known *AuditHead) (AuditChain, error) {
	v := auditVerifier{known: known, afterPosition: math.MinInt64}
	for more := true; more; {
		err := pgx.BeginTxFunc(ctx, conn, readOnly, func(tx pgx.Tx) (err error) {
			more, err = v.verifyBatch(ctx, tx)
			return err
		})
		if err != nil {
			return AuditChain{}, mapped("verify the audit", err)
		}
	}
	v.found.Head = AuditHead{Position: v.position, Hash: hex.EncodeToString(v.hash)}
	return v.found, nil
}

// auditVerifier is the state of VerifyAudit after an entry of the chain.
type auditVerifier struct {
	known    *AuditHead
	position int64 // position of the last correct entry
	hash     []byte
	// afterPosition and afterID are where the next batch begins. A batch can also contain entries
	// that a correct chain does not have, such as a second entry with the same position.
	afterPosition, afterID int64
	key                    []byte
	found                  AuditChain
}

// verifyBatch checks the next entries. The transaction reads one snapshot, so the entries are
// consistent with the ends of the chain.
func (v *auditVerifier) verifyBatch(ctx context.Context, tx pgx.Tx) (more bool, err error) {
	q := dbsqlc.New()
	chain, err := q.ReadAuditChain(ctx, tx)
	if err != nil {
		return false, err
	}
	v.key = chain.HashKey
	if chain.RemovedPosition > v.position { // at the start, or the retention has deleted entries since
		v.position, v.hash = chain.RemovedPosition, chain.RemovedHash
	}
	v.found.Removed = chain.RemovedPosition
	entries, err := q.ReadSealedAudit(ctx, tx, dbsqlc.ReadSealedAuditParams{
		AfterPosition: v.afterPosition, AfterID: v.afterID, Lim: auditBatch,
	})
	if err != nil {
		return false, err
	}
	for n := range entries {
		if v.found.Fault = v.check(&entries[n]); v.found.Fault != "" {
			return false, nil
		}
	}
	if len(entries) == auditBatch {
		return true, nil
	}
	v.checkEnd(&chain)
	waiting, err := q.CountUnsealedAudit(ctx, tx, maxWaitingAudit)
	v.found.Waiting, v.found.WaitingFor = waiting.Rows, waiting.Age
	return false, err
}

// check checks the next entry and describes what is wrong with it. It returns "" if the entry is
// correct.
func (v *auditVerifier) check(e *dbsqlc.ReadSealedAuditRow) string {
	if missing := v.position + 1; e.ChainPosition > missing {
		return fmt.Sprintf("the entry at position %d is missing: the next one is entry %d at position %d",
			missing, e.AuditID, e.ChainPosition)
	}
	hash := chainHash(v.hash, e)
	if e.ChainPosition <= v.position || !bytes.Equal(e.ChainHash, hash) || !v.hasContent(e) {
		return fmt.Sprintf("entry %d (%s) at position %d does not match the chain: it was changed or inserted",
			e.AuditID, e.Method, e.ChainPosition)
	}
	v.position, v.hash = e.ChainPosition, hash
	v.afterPosition, v.afterID = e.ChainPosition, e.AuditID
	v.found.Entries++
	if e.Erased {
		v.found.Erased++
	}
	if k := v.known; k != nil && k.Position == v.position && k.Hash != hex.EncodeToString(hash) {
		return fmt.Sprintf("entry %d (%s) at position %d does not have the known hash: the chain was rewritten",
			e.AuditID, e.Method, v.position)
	}
	return ""
}

// hasContent reports whether the subject and the details of an entry match their hashes, or were
// erased.
func (v *auditVerifier) hasContent(e *dbsqlc.ReadSealedAuditRow) bool {
	subject := bytes.Equal(e.SubjectHash, auditMAC(v.key, e.Namespace, e.Subject))
	if !e.Erased {
		return subject && bytes.Equal(e.DetailsHash, auditMAC(v.key, e.Namespace, e.Details))
	}
	return (subject || e.Subject == "erased:"+hex.EncodeToString(e.SubjectHash)) && e.Details == ""
}

// checkEnd checks that no entries are missing at the end of the chain.
func (v *auditVerifier) checkEnd(chain *dbsqlc.ReadAuditChainRow) {
	last := chain.LastPosition
	if v.known != nil {
		last = max(last, v.known.Position)
		v.found.KnownBefore = v.known.Position <= chain.RemovedPosition
	}
	switch {
	case v.position < last:
		v.found.Fault = fmt.Sprintf("the entries from position %d to %d at the end are missing", v.position+1, last)
	case v.position > last || !bytes.Equal(v.hash, chain.LastHash):
		v.found.Fault = fmt.Sprintf("the chain ends at position %d: audit_chain does not match", v.position)
	}
}

// chainHash computes the hash of an entry from the hash of the previous one, like the SQL function
// seal_audit.
func chainHash(previous []byte, e *dbsqlc.ReadSealedAuditRow) []byte {
	sum := sha256.Sum256(append(bytes.Clone(previous), auditParts(
		strconv.FormatInt(e.ChainPosition, 10), strconv.FormatInt(e.AuditID, 10),
		strconv.FormatInt(e.Time.UnixMicro(), 10), e.Actor, e.Source, e.Method, e.Namespace,
		hex.EncodeToString(e.SubjectHash), hex.EncodeToString(e.DetailsHash),
	)...))
	return sum[:]
}

// auditMAC returns the keyed hash of a subject or of details, like the SQL function audit_mac.
func auditMAC(key []byte, namespace, value string) []byte {
	inner := sha256.Sum256(append(bytes.Clone(key), auditParts(namespace, value)...))
	outer := sha256.Sum256(append(bytes.Clone(key), inner[:]...))
	return outer[:]
}

// auditParts returns texts as bytes, like the SQL function audit_parts.
func auditParts(parts ...string) (text []byte) {
	for _, p := range parts {
		text = binary.BigEndian.AppendUint32(text, uint32(len(p)))
		text = append(text, p...)
	}
	return text
}
