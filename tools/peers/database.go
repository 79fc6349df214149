package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// database is an empty database for one measurement of a peer.
type database struct {
	server string // DSN of a database on the same server
	config *pgxpool.Config
}

// createDatabase creates a database. The caller drops it.
func createDatabase(ctx context.Context, server string) (*database, error) {
	name := "progressor_peers_" + strings.ToLower(rand.Text()[:8])
	if err := execute(ctx, server, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return nil, fmt.Errorf("create a database (the role needs CREATEDB): %w", err)
	}
	config, err := pgxpool.ParseConfig(server)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Database = name
	return &database{server: server, config: config}, nil
}

func (d *database) drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return execute(ctx, d.server, "DROP DATABASE IF EXISTS "+d.config.ConnConfig.Database+" WITH (FORCE)")
}

func execute(ctx context.Context, dsn, statement string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// pool returns the configuration of a pool with at most n connections.
func (d *database) pool(n int32) *pgxpool.Config {
	config := d.config.Copy()
	config.MaxConns = n
	return config
}

// dsn returns the DSN of the database, with all settings of the DSN of the server.
func (d *database) dsn() string {
	name := d.config.ConnConfig.Database
	if u, err := url.Parse(d.server); err == nil && u.Scheme != "" {
		u.Path = "/" + name
		return u.String()
	}
	return d.server + " dbname=" + name // the last dbname counts
}

// environment returns the variables that tell clients of other languages how to connect.
func (d *database) environment() []string {
	c := d.config.ConnConfig
	return []string{
		"PGHOST=" + c.Host, fmt.Sprint("PGPORT=", c.Port), "PGUSER=" + c.User,
		"PGPASSWORD=" + c.Password, "PGDATABASE=" + c.Database,
	}
}

// measure runs a case of a peer and adds its result to r. The case returns how long the operations
// took.
func (d *database) measure(
	ctx context.Context, r results, name string, operations int, run func() (time.Duration, error),
) error {
	before, err := d.wal(ctx)
	if err != nil {
		return err
	}
	took, err := run()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	after, err := d.wal(ctx)
	r[name] = result{
		Rate:     float64(operations) / took.Seconds(),
		WALBytes: float64(after-before) / float64(operations),
	}
	return err
}

// warmup is how long operations run before a window. It is the default of progressor bench.
const warmup = 2 * time.Second

// window measures operations that run in the background and are counted in done. It measures for a
// duration, after a warm-up.
func (d *database) window(ctx context.Context, done *atomic.Int64, duration time.Duration) (result, error) {
	pause(ctx, warmup)
	before, err := d.wal(ctx)
	if err != nil {
		return result{}, err
	}
	began, first := time.Now(), done.Load()
	pause(ctx, duration)
	took, operations := time.Since(began), done.Load()-first
	after, err := d.wal(ctx)
	if err == nil && operations == 0 {
		err = errors.New("no operation ended")
	}
	if err != nil {
		return result{}, err
	}
	return result{
		Rate:     float64(operations) / took.Seconds(),
		WALBytes: float64(after-before) / float64(operations),
	}, nil
}

// wal returns the number of bytes of WAL that the server has ever written.
func (d *database) wal(ctx context.Context) (written int64, err error) {
	conn, err := pgx.ConnectConfig(ctx, d.config.ConnConfig)
	if err != nil {
		return 0, err
	}
	err = conn.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint`).Scan(&written)
	return written, errors.Join(err, conn.Close(ctx))
}
