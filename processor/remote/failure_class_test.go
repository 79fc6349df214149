package remote

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// newBanner returns the URL of a server that does not respond with HTTP.
func newBanner(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1<<16))
			_, _ = io.WriteString(conn, "SSH-2.0-secret\r\n\r\n")
			_ = conn.Close()
		}
	}()
	return "http://" + listener.Addr().String()
}

// The error of a processor, which users of the namespace see, contains no address and no data that
// a server has sent instead of HTTP. The log contains the complete error.
func TestErrorsShowNothingInternal(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		closed, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = closed.Close()
		banner := newBanner(t)
		for url, want := range map[string]string{
			"http://" + closed.Addr().String(): "processor not reached: connection refused",
			banner:                             "the response of the processor was lost: ",
		} {
			_, err := dialed(t, way, url).Process(t.Context(), request())
			_, address, _ := strings.Cut(url, "://")
			text := processor.FailureOf(err).GetMessage()
			if rest := strings.ReplaceAll(text, "at "+address, ""); !strings.Contains(text, want) ||
				strings.Contains(rest, "127.0.0.1") || strings.Contains(rest, "SSH") {
				t.Errorf("%s: %s", url, text)
			}
			if network, ok := errors.AsType[*networkError](err); !ok || network.Detail() == network.Error() {
				t.Errorf("%s: the log has no more than the class: %v", url, err)
			}
		}
	})
}
