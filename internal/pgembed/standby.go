//go:build unix

package pgembed

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Standby starts a streaming standby of s in a new directory. s must be running. name becomes the
// standby's application_name, which synchronous_standby_names of s can refer to.
func (s *Server) Standby(ctx context.Context, config Config, name string) (*Server, error) {
	binDir, err := FindBinDir()
	if err != nil {
		return nil, err
	}
	place, err := newPlace(&config, binDir)
	if err != nil {
		return nil, fmt.Errorf("prepare standby directory %q: %w", config.Dir, err)
	}
	conninfo := fmt.Sprintf("host=%s port=%s user=%s application_name=%s", s.place.socketDir, port, superuser, name)
	backup := place.command("pg_basebackup", "--pgdata", place.clusterDir(), "--dbname", conninfo,
		"--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-sync")
	if _, err := runCommand(ctx, backup); err != nil {
		return nil, fmt.Errorf("pg_basebackup: %w", err)
	}
	return Start(ctx, config)
}

// Promote makes a standby a primary and waits until it accepts writes.
func (s *Server) Promote(ctx context.Context) error {
	promoted, err := s.Ask(ctx, "SELECT pg_promote(true, 60)")
	if err == nil && !promoted {
		err = errors.New("the server is still in recovery after 60 s")
	}
	if err != nil {
		return fmt.Errorf("promote %q: %w", s.place.dir, err)
	}
	return nil
}

// Detach stops the standby's WAL receiver: what its primary commits afterwards never reaches it.
func (s *Server) Detach(ctx context.Context) error {
	if _, err := s.Ask(ctx, "ALTER SYSTEM SET primary_conninfo = ''"); err != nil {
		return fmt.Errorf("detach %q: %w", s.place.dir, err)
	}
	if _, err := s.Ask(ctx, "SELECT pg_reload_conf()"); err != nil {
		return fmt.Errorf("detach %q: %w", s.place.dir, err)
	}
	for {
		detached, err := s.Ask(ctx, "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)")
		if err != nil {
			return fmt.Errorf("detach %q: %w", s.place.dir, err)
		}
		if detached {
			return nil
		}
	}
}

// Ask runs one statement as superuser and returns the boolean of its row, or false if there is no
// row.
func (s *Server) Ask(ctx context.Context, sql string) (answer bool, err error) {
	conn, err := pgx.Connect(ctx, s.DSN())
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	err = conn.QueryRow(ctx, sql).Scan(&answer)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return answer, err
}
