package rpc

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/internal/budget"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	// requestBudget is the maximum total size in bytes of the large requests of a node, from their
	// arrival until their answers. While a request is read and decoded, it needs more memory,
	// because its buffer grows by doubling.
	requestBudget = 48 << 20
	// memoryWait is how long a request waits for its part of the budget.
	memoryWait = 10 * time.Second
	// maxExpansion is the maximum number of bytes to which a byte of gzip can expand.
	maxExpansion = 1032
)

// boundOfMemory is the label of requests that are rejected because other requests use the memory.
const boundOfMemory = "request_bytes"

// memory limits the memory for the bodies of requests.
type memory struct {
	requests *budget.Budget
	refused  func(bound string) // counts a rejected request
	failed   undecodable
}

// limit makes large requests wait for others, and stops reading bodies that exceed the limit of a
// request. Without it, Connect would read them completely.
func (m *memory) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		packed := isCompressed(r.Header)
		if !packed && r.ContentLength >= 0 && r.ContentLength <= budget.Free {
			next.ServeHTTP(w, r)
			return
		}
		held := m.requests.Of(clientOf(r.Context(), r.RemoteAddr))
		defer held.Release()
		r = r.WithContext(budget.In(r.Context(), held))
		r.Body = &heldBody{ReadCloser: r.Body, memory: m, held: held, ctx: r.Context(), size: r.ContentLength,
			expansion: 1}
		if packed {
			r.Body.(*heldBody).expansion = maxExpansion //nolint:forcetypeassert // it was just created
		}
		next.ServeHTTP(w, r)
	})
}

// isCompressed reports whether a message of a request may be compressed.
func isCompressed(h http.Header) bool {
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		if encoding := h.Get(name); encoding != "" && encoding != "identity" {
			return true
		}
	}
	return false
}

// heldBody is a body that waits for memory before it becomes large.
type heldBody struct {
	io.ReadCloser
	memory    *memory
	held      *budget.Holder
	ctx       context.Context //nolint:containedctx // the context of the request
	size      int64           // length of the body; -1 if it is unknown
	expansion int64           // maximum number of bytes to which a byte of the body can expand
	read      int64
	asked     bool
}

// Read reads a part of the body.
func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		b.memory.failed.inc()
	}
	if b.asked || b.read*b.expansion <= budget.Free {
		return n, err
	}
	b.asked = true
	most := int64(process.MaxMessageBytes)
	if b.size >= 0 && b.size < most/b.expansion { // a client can send any Content-Length
		most = b.size * b.expansion
	}
	ctx, cancel := context.WithTimeout(b.ctx, memoryWait)
	defer cancel()
	if b.held.Take(ctx, most) != nil {
		b.memory.refused(boundOfMemory)
		return n, errNoMemory()
	}
	return n, err
}

func errNoMemory() error {
	err := connect.NewError(connect.CodeResourceExhausted, fmt.Errorf(
		"overloaded: other large requests have used up the %d MiB of the node for %s: send smaller requests, or fewer "+
			"at the same time", requestBudget>>20, memoryWait))
	addDetail(err, &progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_OVERLOADED})
	return err
}

// keepDecoded releases the memory that a decoded request no longer needs.
func keepDecoded(ctx context.Context, request any) {
	held := budget.From(ctx)
	if m, ok := request.(proto.Message); ok && held.Has() {
		held.Keep(int64(proto.Size(m)))
	}
}

// undecodable counts requests that cannot be decoded. A nil counter counts nothing.
type undecodable func()

func (u undecodable) inc() {
	if u != nil {
		u()
	}
}

// count counts an error, and returns it.
func (u undecodable) count(err error) error {
	if err != nil {
		u.inc()
	}
	return err
}

// limitedGzip stops decompressing soon after the maximum size of a message. Connect would
// decompress the rest to report its size, which takes minutes for a few megabytes.
type limitedGzip struct {
	gzip.Reader
	failed undecodable
	left   int
}

// Reset begins another message.
func (g *limitedGzip) Reset(r io.Reader) error {
	g.left = process.MaxMessageBytes + 1
	return g.Reader.Reset(r)
}

// Read decompresses a part of the message.
func (g *limitedGzip) Read(p []byte) (int, error) {
	if g.left == 0 {
		return 0, io.EOF // Connect has read more than it accepts
	}
	n, err := g.Reader.Read(p[:min(len(p), g.left)])
	if g.left -= n; g.left == 0 && n > 0 {
		g.failed.inc()
	}
	return n, err
}
