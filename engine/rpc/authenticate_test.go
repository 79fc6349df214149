package rpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/engine/streams"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// oneKey is a table with one key, and with grants of principals without a key.
type oneKey struct {
	id     string
	hash   [32]byte
	grants map[string]string // role in all namespaces by principal
}

func (k *oneKey) ReadGrants(_ context.Context, principals []string) (storage.PrincipalGrants, error) {
	var all storage.PrincipalGrants
	for _, principal := range principals {
		if role := k.grants[principal]; role != "" {
			all.Roles, all.Patterns = append(all.Roles, role), append(all.Patterns, "*")
		}
	}
	return all, nil
}

func (k *oneKey) NoteKeyUse(context.Context, string) error { return nil }

func (k *oneKey) ReadKey(_ context.Context, id string) (storage.KeyState, error) {
	if id != k.id {
		return storage.KeyState{}, process.ErrKeyNotFound
	}
	return storage.KeyState{SecretHash: k.hash[:], Roles: []string{"root"}, Patterns: []string{"*"}}, nil
}

// newPrivateSite serves a site that requires authentication. principal returns the principal name
// of the last Call.
func newPrivateSite(t *testing.T) (url, token string, key *oneKey, principal func() string) {
	t.Helper()
	id, token := auth.NewToken()
	key = &oneKey{id: id, hash: auth.Hash(token)}
	seen := make(chan string, 100)
	script := echo()
	script.call = func(ctx context.Context, r *progressorv1.CallRequest) (*progressorv1.CallResponse, error) {
		seen <- actorOf(ctx).Name
		return &progressorv1.CallResponse{Response: r.GetArgs()}, nil
	}
	registry := prometheus.NewRegistry()
	h, err := newHandler(Config{
		Registerer: registry, Gatherer: registry, Streams: &streams.Streams{}, Auth: auth.New(key, "", registry),
	}, scripted(script), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return listen(t, h), token, key, func() string { return <-seen }
}

// TestEveryMethodNeedsAToken calls every method of every service, and every page, without a token,
// with an invalid token and with a valid token. Without a valid token, only methods and pages that
// need none are served.
func TestEveryMethodNeedsAToken(t *testing.T) {
	t.Parallel()
	url, token, _, _ := newPrivateSite(t)
	paths := map[string]bool{ // whether a token is needed
		"GET /": false, "GET /livez": false, "GET /readyz": false, "GET /openapi.yaml": false,
		"GET /metrics": true, "GET /changes?bad=1": true, "GET /whoami": true,
		"POST /grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      true,
		"POST /grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": true,
		"POST /grpc.health.v1.Health/Check":                                   false,
	}
	for _, service := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			paths["POST /"+service+"/"+string(methods.Get(i).Name())] = true
		}
	}
	// The key is known before the first failure, so the limit on failures does not apply to it.
	answer, body := asked(t, http.MethodGet, url+"/whoami", "Authorization", "Bearer "+token)
	if !strings.HasPrefix(body, "key:") {
		t.Fatalf("%s %s", answer.Status, body)
	}
	_, wrong := auth.NewToken()
	for path, private := range paths {
		method, path, _ := strings.Cut(path, " ")
		for header, refused := range map[string]bool{"": private, "Bearer " + wrong: true, "Bearer " + token: false} {
			if header != "" && !private {
				continue
			}
			headers := []string{"Content-Type", "application/json"}
			if header != "" {
				headers = append(headers, "Authorization", header)
			}
			answer, body := asked(t, method, url+path, headers...)
			limited := answer.StatusCode == http.StatusTooManyRequests
			if method == http.MethodGet && refused && strings.HasPrefix(body, "{") {
				t.Errorf("%s: the error of a page is %s", path, body)
			}
			if got := answer.StatusCode == http.StatusUnauthorized || limited; got != refused {
				t.Errorf("%s %s with %.20q: %s %.200s", method, path, header, answer.Status, body)
			}
		}
	}
}

// The status shows a client whether its token is invalid or whether it must try again.
func TestCodesOfFailedAuthentications(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err, shown error
		status     int
	}{
		{auth.ErrInvalid, auth.ErrInvalid, http.StatusUnauthorized},
		{auth.ErrLimited, auth.ErrLimited, http.StatusTooManyRequests},
		{auth.ErrBusy, auth.ErrBusy, http.StatusTooManyRequests},
		{errors.Join(process.ErrUnavailable, auth.ErrIssuer), auth.ErrIssuer, http.StatusServiceUnavailable},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/whoami", http.NoBody)
		refuseUnauthenticated(w, r, connect.NewErrorWriter(), c.err)
		if w.Code != c.status || w.Body.String() != c.shown.Error()+"\n" {
			t.Errorf("%v: %d %s", c.err, w.Code, w.Body)
		}
	}
}

// Every protocol reports a missing token in its own way, and accepts a valid token. The principal
// is the actor of commands.
func TestTokensOfProtocols(t *testing.T) {
	t.Parallel()
	for name := range protocols("") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, token, key, principal := newPrivateSite(t)
			client := protocols(url)[name]
			request := &progressorv1.CallRequest{Namespace: "n", ProcessId: "p"}
			_, err := client.Call(t.Context(), request)
			requireCode(t, err, connect.CodeUnauthenticated)
			if detailOf(err).GetReason() != progressorv1.ErrorDetail_REASON_UNAUTHENTICATED ||
				!strings.Contains(err.Error(), "Authorization: Bearer TOKEN") {
				t.Errorf("%v, %s", err, text(detailOf(err)))
			}
			ctx, call := connect.NewClientContext(t.Context())
			call.RequestHeader().Set("Authorization", "Bearer "+token)
			if _, err := client.Call(ctx, request); err != nil {
				t.Fatal(err)
			}
			if got := principal(); got != "key:"+key.id {
				t.Errorf("principal %q", got)
			}
		})
	}
}

// A client without a token cannot make the engine read its body.
func TestAuthenticationBeforeTheBody(t *testing.T) {
	t.Parallel()
	url, _, _, _ := newPrivateSite(t)
	body, writer := io.Pipe()
	defer writer.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+callPath, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized || answer.Header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("%s, %v", answer.Status, answer.Header)
	}
}

// MessagePack clients get their errors as MessagePack.
func TestUnauthenticatedMessagePack(t *testing.T) {
	t.Parallel()
	url, _, _, _ := newPrivateSite(t)
	answer, body := asked(t, http.MethodPost, url+callPath, "Content-Type", typeMsgpack)
	if answer.StatusCode != http.StatusUnauthorized || answer.Header.Get("Content-Type") != typeMsgpack ||
		!strings.Contains(body, "unauthenticated") {
		t.Errorf("%s %q %q", answer.Status, answer.Header.Get("Content-Type"), body)
	}
}

// The health of a namespace shows whether the namespace exists, so the request needs a token.
func TestHealthWithoutToken(t *testing.T) {
	t.Parallel()
	url, token, _, _ := newPrivateSite(t)
	client := grpchealth.NewClient(http.DefaultClient, url)
	if _, err := client.Check(t.Context(), &grpchealth.CheckRequest{}); err != nil {
		t.Errorf("the program: %v", err)
	}
	_, err := client.Check(t.Context(), &grpchealth.CheckRequest{Service: "namespace/orders"})
	requireCode(t, err, connect.CodeUnauthenticated)
	ctx, call := connect.NewClientContext(t.Context())
	call.RequestHeader().Set("Authorization", "Bearer "+token)
	_, err = client.Check(ctx, &grpchealth.CheckRequest{Service: "namespace/orders"})
	requireCode(t, err, connect.CodeUnimplemented)
}
