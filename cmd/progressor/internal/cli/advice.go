package cli

import (
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
)

// Error texts of net/http when only one side uses TLS, and of an engine when a request has no
// token.
const (
	plainToTLS   = "Client sent an HTTP request to an HTTPS server"
	plainRequest = "400 Bad Request" // the error of Connect, which does not contain plainToTLS
	tlsToPlain   = "server gave HTTP response to HTTPS client"
	noToken      = "the request has no token"
)

// nextOfConnection returns the next step after an error of the connection to an engine, or of the
// authentication. It returns "" for other errors.
func nextOfConnection(err error, message string) string {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, other := errors.AsType[x509.HostnameError](err)
	_, host := errors.AsType[*net.DNSError](err)
	switch {
	case host:
		return "check the host name in --address, a URL such as http://127.0.0.1:8080"
	case unknown:
		return "if the engine uses your own certificate authority, set --tls.ca-file to its certificate"
	case other:
		return "use a name of the certificate in --address, or set --tls.server-name"
	case strings.HasPrefix(message, plainToTLS), message == plainRequest:
		return "the engine may accept only TLS: use https:// in --address"
	case strings.Contains(message, tlsToPlain):
		return "the engine has no TLS: use http:// in --address"
	case strings.HasPrefix(message, noToken):
		return "set --token-file or PROGRESSOR_TOKEN, or log in with progressor login"
	default:
		return ""
	}
}

// databaseReport completes the report of a failed connection to PostgreSQL.
func databaseReport(err error, c errorReport) errorReport {
	c.Message, c.Exit = output.OneLine(strings.Join(attempts(err.Error()), "; ")), ExitUnavailable
	failure, _ := errors.AsType[*pgconn.PgError](err)
	if failure == nil {
		failure = &pgconn.PgError{}
	}
	switch failure.Code {
	case "28P01":
		c.Next = "check the role in --db.dsn and its password: --db.password-file, --db.password-command or " +
			"PROGRESSOR_DB_DSN"
	case "28000":
		c.Next = "check the role in --db.dsn, and pg_hba.conf of PostgreSQL"
	case "3D000":
		c.Next = "create the database, or check its name in --db.dsn"
	default:
		c.Next = "check that PostgreSQL runs there, and that --db.dsn is correct"
	}
	return c
}

// attempts returns the lines of a pgx error, one for each attempt to connect. A server without TLS
// refuses attempts that use TLS. The lines of these attempts are omitted if there are other lines.
// Repeated lines are also omitted.
func attempts(text string) []string {
	head, rest, ok := strings.Cut(text, ":\n\t")
	if !ok {
		return []string{text}
	}
	var lines []string
	for line := range strings.SplitSeq(rest, "\n\t") {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	others := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return strings.HasSuffix(line, "server refused TLS connection")
	})
	if len(others) > 0 {
		lines = others
	}
	lines[0] = head + ": " + lines[0]
	return lines
}

// nextOfDenial returns the next step after PostgreSQL has denied a statement to the role, or "".
func nextOfDenial(err error) string {
	if failure, ok := errors.AsType[*pgconn.PgError](err); ok && failure.Code == "42501" {
		return "grant the role its rights (docs/operations.md#roles); migrations need the owner of the schema"
	}
	return ""
}
