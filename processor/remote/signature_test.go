package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/signature"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Each request of any size is signed with the current keys. The receiver reads the request from the
// verified body.
func TestSignedRequests(t *testing.T) {
	old, err := signature.ParseKey("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	replaced, err := signature.ParseKey("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")
	if err != nil {
		t.Fatal(err)
	}
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		way.SigningSecrets = []string{"key"}
		way.Url = "http://127.0.0.1:1"
		if way.GetProtocol() == progressorv1.ConnectProcessor_PROTOCOL_GRPC {
			_, err := Dial("shop", way, 10, func(context.Context) (Credentials, error) {
				return Credentials{}, nil
			})
			if bad, ok := errors.AsType[*process.InvalidError](err); !ok || bad.Field != fieldSigning {
				t.Errorf("with gRPC: %v", err)
			}
			return
		}
		if _, err := Dial("shop", way, 10, nil); err == nil {
			t.Error("a processor with a signing secret is called without a signature")
		}
		var id string
		verified := processor.Handler(processor.Echo(), processor.WithMiddleware(func(next http.Handler) http.Handler {
			next = signature.Handler(next, process.MaxMessageBytes, replaced)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				id = r.Header.Get(signature.HeaderID)
				next.ServeHTTP(w, r)
			})
		}))
		way.Url = serve(t, verified).URL
		keys := []signature.Key{old}
		p, err := Dial("shop", way, 10, func(context.Context) (Credentials, error) {
			return Credentials{Headers: map[string]string{"webhook-id": "forged"}, Keys: keys}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.(*Processor).Close() })
		req := request()
		if _, err := p.Process(t.Context(), req); !processor.BadResponse(err) || !strings.Contains(err.Error(), "401") {
			t.Errorf("with the old key only: %v", err)
		}
		keys = []signature.Key{replaced, old}
		for _, size := range []int{0, 1, 3 << 10, 1 << 20} {
			req.Args = bytes.Repeat([]byte{'x'}, size)
			resp, err := p.Process(t.Context(), req)
			if err != nil || len(resp.GetResult().GetResponse()) != size || id != "task_shop_1152921504606846976_77" {
				t.Errorf("%d bytes: %d, %v, ID %s", size, len(resp.GetResult().GetResponse()), err, id)
			}
		}
	})
}

// The signature covers the bytes that are sent.
func TestSignatureOfBody(t *testing.T) {
	key, err := signature.ParseKey("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(context.WithValue(t.Context(), messageIDKey{}, "task_1_2"), http.MethodPost,
		"http://localhost/", io.NopCloser(strings.NewReader("body")))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := signed(req, []signature.Key{key})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(whole.Body)
	if err != nil || string(body) != "body" || whole.ContentLength != 4 {
		t.Errorf("%q of %d bytes, %v", body, whole.ContentLength, err)
	}
	if err := signature.Verify(whole.Header, body, time.Now(), key); err != nil {
		t.Error(err)
	}
}
