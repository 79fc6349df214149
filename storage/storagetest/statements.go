package storagetest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// CopyStatements copies the messages of a client of PostgreSQL and counts those that run a
// statement.
func CopyStatements(to io.Writer, from io.Reader, count *atomic.Int64) error {
	head := make([]byte, 5)
	// The startup message has no type.
	if _, err := io.ReadFull(from, head[:4]); err != nil {
		return err
	}
	rest := head[:4]
	for {
		size := int64(binary.BigEndian.Uint32(rest[len(rest)-4:])) - 4
		if size < 0 {
			return fmt.Errorf("a message of %d bytes", size)
		}
		if _, err := to.Write(rest); err != nil {
			return err
		}
		if _, err := io.CopyN(to, from, size); err != nil {
			return err
		}
		rest = head
		if _, err := io.ReadFull(from, rest); err != nil {
			return err
		}
		if rest[0] == 'E' || rest[0] == 'Q' {
			count.Add(1)
		}
	}
}

// CountStatements starts a proxy. It returns its connection string and the number of statements
// that clients have run through it.
func CountStatements(t testing.TB, dsn string) (through string, count *atomic.Int64) {
	t.Helper()
	count = &atomic.Int64{}
	p := NewProxy(t, dsn, func(client, server net.Conn) {
		go func() {
			defer client.Close()
			defer server.Close()
			_ = CopyStatements(server, client, count)
		}()
		_, _ = io.Copy(client, server)
	})
	return p.DSN, count
}
