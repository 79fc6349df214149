package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/internal/pgembed"
	"github.com/progressor-engine/progressor/storage"
)

// server is the measured PostgreSQL server: one of the caller, or a private one that ends with the
// bench. Each measurement gets a new database, which is dropped afterwards.
type server struct {
	dsn        string // DSN of the caller, or of the private server
	admin      *pgx.Conn
	private    *pgembed.Server // nil if the server is the caller's
	postmaster int             // 0 if it is not on this machine
	template   *scratch        // has the schema; createScratch clones it; nil before the first one
}

// privateSettings are the settings of a private server. docs/operations.md recommends a quarter of
// the memory. 1 GB holds the data that the workloads use. With 256 MB, each call to 10,000
// processes among a million made PostgreSQL read 1.0 pages and evict 1.1; with 1 GB, 0.1 and 0.2.
// No checkpoint begins during a measurement: at 15,000 calls per second, 4 GB of WAL would trigger
// one after 75 seconds.
var privateSettings = map[string]string{"shared_buffers": "1GB", "max_wal_size": "8GB"}

// openServer connects to the server of dsn, or starts a private one if dsn is empty.
func openServer(ctx context.Context, dsn string, settings map[string]string) (*server, error) {
	s := &server{dsn: dsn}
	if dsn == "" {
		private, err := pgembed.Start(ctx, pgembed.Config{Ephemeral: true, Settings: settings})
		if err != nil {
			return nil, err
		}
		s.private, s.dsn = private, private.DSN()
	}
	admin, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to PostgreSQL: %w", err), s.close(ctx))
	}
	s.admin = admin
	var backend int
	if err := admin.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&backend); err != nil {
		return nil, errors.Join(fmt.Errorf("read the backend's process ID: %w", err), s.close(ctx))
	}
	s.postmaster = postmasterOf(backend)
	return s, nil
}

func (s *server) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var errs []error
	if s.template != nil {
		errs = append(errs, s.template.drop(ctx))
	}
	if s.admin != nil {
		errs = append(errs, s.admin.Close(ctx))
	}
	if s.private != nil {
		errs = append(errs, s.private.Stop(ctx))
	}
	return errors.Join(errs...)
}

// scratch is a database of the bench.
type scratch struct {
	server *server
	name   string
	dsn    string
}

// createScratch creates a database with the schema. It migrates only the first one.
func (s *server) createScratch(ctx context.Context) (*scratch, error) {
	if s.template == nil {
		d, err := s.create(ctx, emptyTemplate)
		if err != nil {
			return nil, err
		}
		if err := storage.Migrate(ctx, d.dsn); err != nil {
			return nil, errors.Join(err, d.drop(ctx))
		}
		s.template = d
	}
	return s.create(ctx, s.template.name)
}

// emptyTemplate is the template of databases without the schema.
const emptyTemplate = "template0"

// create creates a database of the bench from a template.
func (s *server) create(ctx context.Context, template string) (*scratch, error) {
	var suffix [4]byte
	_, _ = rand.Read(suffix[:]) // it never fails
	d := &scratch{server: s, name: "progressor_bench_" + hex.EncodeToString(suffix[:])}
	var err error
	if d.dsn, err = dsnWith(s.dsn, d.name); err != nil {
		return nil, err
	}
	if _, err := s.admin.Exec(ctx,
		"CREATE DATABASE "+pgx.Identifier{d.name}.Sanitize()+" TEMPLATE "+template); err != nil {
		return nil, fmt.Errorf("create a database for the bench (its role needs CREATEDB): %w", err)
	}
	return d, nil
}

// drop drops the database, even after ctx has ended, so that an interrupted bench leaves nothing
// behind.
func (d *scratch) drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	admin, err := pgx.Connect(ctx, d.server.dsn) // the connection of the server breaks when its context ends
	if err != nil {
		return fmt.Errorf("drop database %s: %w", d.name, err)
	}
	_, err = admin.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{d.name}.Sanitize()+" WITH (FORCE)")
	if err := errors.Join(err, admin.Close(ctx)); err != nil {
		return fmt.Errorf("drop database %s: %w", d.name, err)
	}
	return nil
}

// connect opens a connection whose unqualified names are in schema.
func (d *scratch) connect(ctx context.Context, schema string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(d.dsn)
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["search_path"] = schema
	cfg.RuntimeParams["application_name"] = "progressor bench"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the bench's database: %w", err)
	}
	return conn, nil
}

// checkpoint runs a checkpoint, or does nothing if the role may not run CHECKPOINT.
func (s *server) checkpoint(ctx context.Context) error {
	_, err := s.admin.Exec(ctx, `CHECKPOINT`)
	if isPermissionDenied(err) {
		return nil
	}
	return err
}

// clockAhead returns how far the clock of the server is ahead of this machine: the best of several
// tries, accurate to half a round trip.
func (s *server) clockAhead(ctx context.Context) (time.Duration, error) {
	best, ahead := time.Hour, time.Duration(0)
	for range 10 {
		var theirs time.Time
		begin := time.Now()
		if err := s.admin.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&theirs); err != nil {
			return 0, fmt.Errorf("read the server's clock: %w", err)
		}
		took := time.Since(begin)
		if took < best {
			best, ahead = took, theirs.Sub(begin.Add(took/2))
		}
	}
	return ahead, nil
}

// dsnWith returns a connection string for another database of the same server.
func dsnWith(dsn, database string) (string, error) {
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		parsed, err := url.Parse(dsn)
		if err != nil {
			return "", errors.New("--dsn is not a valid URL") // the cause quotes it, including the password
		}
		parsed.Path, parsed.RawPath = "/"+database, ""
		query := parsed.Query()
		query.Del("dbname")
		query.Del("database")
		parsed.RawQuery = query.Encode()
		return parsed.String(), nil
	}
	return dsn + " dbname=" + database, nil // the last one wins
}
