package storage_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// verify returns the state of the hash chain of the audit.
func (b *bench) verify(known ...storage.AuditHead) storage.AuditChain {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.dsn)
	must(b.t, conn, err)
	defer conn.Close(b.t.Context())
	must(b.t, 0, second(conn.Exec(b.t.Context(), "SET search_path = progressor")))
	var head *storage.AuditHead
	if len(known) > 0 {
		head = &known[0]
	}
	chain, err := storage.VerifyAudit(b.t.Context(), conn, head)
	return must(b.t, chain, err)
}

// seal adds all entries to the chain.
func (b *bench) seal() {
	b.t.Helper()
	more, err := b.SealAudit(b.t.Context())
	if must(b.t, more, err) {
		b.t.Fatal("SealAudit has more entries")
	}
}

// commands adds audit entries of five namespaces, n1 to n5.
func (b *bench) commands() {
	b.t.Helper()
	for n := range 5 {
		name := fmt.Sprint("n", n+1)
		_, err := b.PutNamespace(b.t.Context(), name, []byte(`{"maxWaiting": 5}`), process.Actor{Name: "ada"})
		must(b.t, 0, err)
	}
}

// copyOf is the list of the columns that an inserted entry copies from another entry. It omits
// audit_id and time, which have defaults, and chain_position, which the attack sets.
const copyOf = `actor, source, method, namespace, subject, details, subject_hash, details_hash, chain_hash`

// VerifyAudit detects each of these changes of the audit and of its chain, and names the first
// position that does not match.
func TestAuditChainFindsChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.commands()
	equal(t, "before the seal", b.verify().Waiting, 5)
	b.seal()
	sound := b.verify()
	equal(t, "sealed", fmt.Sprint(sound.Entries, sound.Waiting, sound.Head.Position, sound.Fault), "5 0 5")
	b.exec("CREATE TABLE kept AS TABLE audit")
	b.exec("CREATE TABLE kept_chain AS TABLE audit_chain")
	third := ask[int64](b, "SELECT audit_id FROM audit WHERE chain_position = 3")
	changed := fmt.Sprintf("entry %d (PutNamespace) at position 3 does not match the chain: it was changed or inserted",
		third)
	inserted, renamed := "(PutNamespace) at position 3 does not match the chain", "(PauseNamespace) at position 3"
	const tail = "from position 4 to 5 at the end are missing"
	for attack, want := range map[string]string{
		"UPDATE audit SET actor = 'bob' WHERE chain_position = 3":                          changed,
		"UPDATE audit SET source = '10.0.0.9' WHERE chain_position = 3":                    changed,
		"UPDATE audit SET namespace = 'n9' WHERE chain_position = 3":                       changed,
		"UPDATE audit SET subject = 'n9' WHERE chain_position = 3":                         changed,
		`UPDATE audit SET details = '{"after": {}}' WHERE chain_position = 3`:              changed,
		"UPDATE audit SET details = NULL WHERE chain_position = 3":                         changed,
		"UPDATE audit SET time = time + interval '1 microsecond' WHERE chain_position = 3": changed,
		"UPDATE audit SET method = 'PauseNamespace' WHERE chain_position = 3":              renamed,
		"UPDATE audit SET audit_id = DEFAULT WHERE chain_position = 3":                     inserted,
		"UPDATE audit SET chain_hash = NULL WHERE chain_position = 3":                      changed,
		`UPDATE audit SET subject = 'n9', subject_hash = audit_mac(
		   (SELECT hash_key FROM audit_chain), namespace, 'n9') WHERE chain_position = 3`: changed,
		"DELETE FROM audit WHERE chain_position = 3":                      "the entry at position 3 is missing",
		"UPDATE audit SET chain_position = NULL WHERE chain_position = 3": "the entry at position 3 is missing",
		"DELETE FROM audit WHERE chain_position = 1":                      "the entry at position 1 is missing",
		"DELETE FROM audit WHERE chain_position > 3":                      tail,
		"DELETE FROM audit": "from position 1 to 5 at the end are missing",
		"UPDATE audit SET chain_position = 7 - chain_position WHERE chain_position BETWEEN 3 AND 4": inserted,
		"INSERT INTO audit (chain_position, " + copyOf + ") SELECT 3, " + copyOf +
			" FROM audit WHERE chain_position = 3": inserted,
		"INSERT INTO audit (chain_position, " + copyOf + ") SELECT 0, " + copyOf +
			" FROM audit WHERE chain_position = 3": "at position 0 does not match the chain",
		"INSERT INTO audit (chain_position, " + copyOf + ") SELECT 6, " + copyOf +
			" FROM audit WHERE chain_position = 5": "at position 6 does not match the chain",
		`WITH moved AS (UPDATE audit SET chain_position = chain_position + 1 WHERE chain_position >= 3)
		   INSERT INTO audit (chain_position, ` + copyOf + ") SELECT 3, " + copyOf +
			" FROM audit WHERE chain_position = 2": inserted,
		"UPDATE audit_chain SET last_position = 4":                              "the chain ends at position 5",
		"UPDATE audit_chain SET removed_position = 2, removed_hash = last_hash": "at position 1 does not match",
	} {
		b.exec(attack)
		if got := b.verify().Fault; !strings.Contains(got, want) {
			t.Errorf("%s\ngot  %q\nwant %q", attack, got, want)
		}
		b.exec("DELETE FROM audit")
		b.exec("INSERT INTO audit OVERRIDING SYSTEM VALUE TABLE kept")
		b.exec("DELETE FROM audit_chain")
		b.exec("INSERT INTO audit_chain TABLE kept_chain")
		if got := b.verify().Fault; got != "" {
			t.Fatalf("after the repair of %s: %s", attack, got)
		}
	}
}

// A role with the rights of the owner can compute a new chain. A known entry reveals the change.
func TestAuditChainIsRewritten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.commands()
	b.seal()
	known := b.verify().Head
	equal(t, "the fault", b.verify(known).Fault, "")
	b.exec("UPDATE audit SET subject = 'n9', chain_position = NULL WHERE subject = 'n3'")
	b.exec("UPDATE audit SET chain_position = NULL, subject_hash = NULL, details_hash = NULL")
	b.exec("UPDATE audit_chain SET last_position = 0, last_hash = ''")
	b.seal()
	equal(t, "the fault without a known entry", b.verify().Fault, "")
	if got := b.verify(known).Fault; !strings.Contains(got, "at position 5 does not have the known hash") {
		t.Error(got)
	}
	known.Position = 9
	if got := b.verify(known).Fault; !strings.Contains(got, "from position 6 to 9 at the end are missing") {
		t.Error(got)
	}
}

// The chain continues after entries were deleted at the end of their retention. Entries that are
// not in the chain stay.
func TestAuditRetentionKeepsTheChain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.commands()
	b.exec("UPDATE audit SET time = time - interval '91 days' WHERE subject IN ('n1', 'n2', 'n4')")
	must(t, 0, b.ForgetAudit(t.Context()))
	equal(t, "entries before the seal", ask[int](b, "SELECT count(*)::int FROM audit"), 5)
	b.seal()
	removed := storage.AuditHead{
		Position: 2, Hash: ask[string](b, "SELECT encode(chain_hash, 'hex') FROM audit WHERE chain_position = 2"),
	}
	must(t, 0, b.ForgetAudit(t.Context()))
	equal(t, "the rest", ask[string](b, "SELECT string_agg(subject, ' ' ORDER BY chain_position) FROM audit"),
		"n3 n4 n5")
	chain := b.verify(removed)
	equal(t, "the chain", fmt.Sprint(chain.Entries, chain.Removed, chain.Head.Position, chain.KnownBefore, chain.Fault),
		"3 2 5 true")
	b.commands()
	b.seal()
	equal(t, "the longer chain", b.verify().Fault, "")
	b.exec("UPDATE audit_chain SET retention = '1000 days'")
	b.exec("DELETE FROM audit WHERE chain_position = 3")
	if got := b.verify().Fault; !strings.Contains(got, "the entry at position 3 is missing") {
		t.Error(got)
	}
	if _, err := b.db.Exec(t.Context(), "UPDATE audit_chain SET retention = '0'"); err == nil {
		t.Error("the retention can be 0")
	}
}

// Concurrent calls of SealAudit add each entry to the chain once, while commands add further
// entries.
func TestNodesSealTheAudit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace("n1")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				_, err := b.SetNamespacePaused(t.Context(), "n1", true, process.Actor{Name: "ada"})
				if err != nil {
					t.Error(err)
				}
				if _, err := b.SealAudit(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	b.seal()
	chain := b.verify()
	equal(t, "the chain", fmt.Sprint(chain.Entries, chain.Waiting, chain.Fault), "40 0")
}
