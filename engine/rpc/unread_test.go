package rpc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// The server closes a connection if it does not read a body to its end. Otherwise, the server would
// take the rest of the body for the next request, and an attacker behind a proxy could send
// requests in the name of others.
func TestUnreadBodyIsNotARequest(t *testing.T) {
	t.Parallel()
	const hidden = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, header := range map[string]string{
		"too large":     "Content-Type: application/json\r\n",
		"MessagePack":   "Content-Type: application/msgpack\r\n",
		"not supported": "Content-Type: text/html\r\n",
		"expected":      "Content-Type: application/json\r\nExpect: 100-continue\r\nOrigin: https://evil.example\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", strings.TrimPrefix(newSite(t, echo()).url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			body := strings.Repeat(" ", maxBodyBytes) + strings.Repeat(hidden, 2<<20/len(hidden))
			go func() { // fails when the server closes the connection
				_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s",
					callPath, header, len(body), body)
			}()
			in := bufio.NewReader(conn)
			first, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, first.Body); err != nil {
				t.Fatal(err)
			}
			next, err := in.ReadString('\n')
			if next != "" || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("after %s: %q, %v", first.Status, next, err)
			}
			if first.StatusCode < 400 {
				t.Errorf("got %s", first.Status)
			}
		})
	}
}
