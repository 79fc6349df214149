package storage

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Reach connects to a database and closes the connection.
func Reach(ctx context.Context, dsn string) error {
	cfg, err := connConfig(dsn, backgroundSettings, "progressor start")
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect: %w", redact(err))
	}
	return conn.Close(ctx)
}

// MayBecomeReachable reports whether Reach may succeed later without a change of settings. Reach
// may succeed later if the server is down, starting, stopping, not writable, or has no free
// connection. It will not if the password is wrong or the database is missing.
func MayBecomeReachable(err error) bool {
	if state := SQLState(err); state != "" {
		switch state[:2] {
		case classConnection, classOperatorIntervention, classResources, classSystem:
			return true
		}
		return false
	}
	connect, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return false
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](connect)
	return !untrusted
}

// HostsOf returns the servers in a connection string, separated by commas.
func HostsOf(dsn string) string {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return ""
	}
	hosts := []string{net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))}
	for _, f := range cfg.Fallbacks {
		hosts = append(hosts, net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port))))
	}
	return strings.Join(slices.Compact(hosts), ", ")
}
