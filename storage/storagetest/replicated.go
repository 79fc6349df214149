//go:build unix

package storagetest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/internal/pgembed"
)

// StandbyName is the application_name of the standby of a Replicated pair.
const StandbyName = "standby"

// Replicated is a primary with a streaming standby, for tests of failovers.
type Replicated struct {
	// DSN names both servers. A connection uses the one that accepts writes.
	DSN string

	t                testing.TB
	primary, standby *pgembed.Server
}

// NewReplicated starts a primary with a migrated database and an asynchronous standby. Both stop
// when the test ends.
func NewReplicated(t testing.TB) *Replicated {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	home, err := newHome()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := home.remove(); err != nil {
			t.Error(err)
		}
	})
	r := &Replicated{t: t}
	if r.primary, err = startCached(ctx, home.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stop(r.primary) })
	const name = "replicated"
	r.Do("CREATE DATABASE "+name+" TEMPLATE "+templateName, "ALTER DATABASE "+name+" SET synchronous_commit = on")
	config := serverConfig(home.dir, true)
	config.Dir = filepath.Join(home.dir, "standby")
	if r.standby, err = r.primary.Standby(ctx, config, StandbyName); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stop(r.standby) })
	r.DSN, err = bothHosts(r.primary.DSNFor(name), r.standby.DSNFor(name))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// bothHosts combines the connection strings of two servers.
func bothHosts(primary, standby string) (string, error) {
	first, err := pgx.ParseConfig(primary)
	if err != nil {
		return "", err
	}
	second, err := pgx.ParseConfig(standby)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s host=%s,%s port=%d,%d target_session_attrs=read-write", primary,
		first.Host, second.Host, first.Port, second.Port), nil
}

func (r *Replicated) stop(s *pgembed.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), stepWait)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		r.t.Error(err)
	}
}

// Do runs statements on the primary as superuser, each in its own transaction.
func (r *Replicated) Do(statements ...string) {
	r.t.Helper()
	for _, sql := range statements {
		if err := execute(r.primary.DSN(), sql); err != nil {
			r.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// Await waits until a query returns true on the primary. It runs as superuser.
func (r *Replicated) Await(sql string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), stepWait)
	defer cancel()
	for {
		holds, err := r.primary.Ask(ctx, sql)
		if err != nil {
			r.t.Fatalf("await %s: %v", sql, err)
		}
		if holds {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

// Synchronous makes commits on the primary wait for the standby.
func (r *Replicated) Synchronous() {
	r.t.Helper()
	r.Do("ALTER SYSTEM SET synchronous_standby_names = '"+StandbyName+"'", "SELECT pg_reload_conf()")
	r.Await(`SELECT current_setting('synchronous_standby_names') <> ''
		AND EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming')`)
}

// CatchUp waits until the standby has replayed everything that the primary has written so far.
func (r *Replicated) CatchUp() {
	r.t.Helper()
	r.Await("SELECT EXISTS (SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_insert_lsn())")
}

// Detach disconnects the standby. A failover loses what the primary commits afterwards.
func (r *Replicated) Detach() {
	r.t.Helper()
	if err := r.standby.Detach(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// FailOver crashes the primary and promotes the standby.
func (r *Replicated) FailOver() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepWait)
	defer cancel()
	if err := errors.Join(r.primary.Stop(ctx), r.standby.Promote(ctx)); err != nil {
		r.t.Fatal(err)
	}
}
