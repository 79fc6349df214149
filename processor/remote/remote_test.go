package remote

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	encodingProto   = progressorv1.ConnectProcessor_ENCODING_PROTO
	encodingJSON    = progressorv1.ConnectProcessor_ENCODING_JSON
	encodingMsgpack = progressorv1.ConnectProcessor_ENCODING_MSGPACK
	protocolGRPC    = progressorv1.ConnectProcessor_PROTOCOL_GRPC
)

// ways are the ways to push. They differ in the encoding and the protocol.
var ways = map[string]*progressorv1.ConnectProcessor{
	"connect": {Encoding: encodingProto},
	"grpc":    {Encoding: encodingProto, Protocol: protocolGRPC},
	"json":    {Encoding: encodingJSON},
	"msgpack": {Encoding: encodingMsgpack},
}

// eachWay runs a test for every way to push.
func eachWay(t *testing.T, test func(t *testing.T, way *progressorv1.ConnectProcessor)) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) { test(t, proto.CloneOf(way)) })
	}
}

// serve runs a handler on a server that speaks HTTP/1.1 and HTTP/2 without TLS.
func serve(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

func dialed(t *testing.T, way *progressorv1.ConnectProcessor, url string) processor.Processor {
	t.Helper()
	way.Url = url
	p, err := Dial("shop", way, 10, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.(*Processor).Close() })
	return p
}

func request() *progressorv1.ProcessRequest {
	metadata, _ := structpb.NewStruct(map[string]any{"tenant": "acme", "n": 7.5})
	return &progressorv1.ProcessRequest{
		Type: progressorv1.TaskType_TASK_TYPE_CALL, Args: []byte{0, 1, 0xff}, TaskId: 1 << 60, Attempt: 2,
		FencingToken:   77,
		IdempotencyKey: "key", Context: []byte("ctx"), Deadline: timestamppb.New(time.Unix(1_800_000_000, 5)),
		Process: &progressorv1.Process{
			Namespace: "shop", ProcessId: "ord/ä", Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
			AuxState: []byte("state"), Metadata: metadata,
			History: []*progressorv1.Event{{EventId: 1, TaskId: 1, Payload: []byte("event")}},
		},
	}
}

func TestRoundTrip(t *testing.T) {
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		recorder := processortest.NewRecorder(func(
			context.Context, *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			return processor.Result().Event([]byte{0xfe, 0}).AuxState(nil).Response([]byte("yes")).
				Metadata(map[string]any{"a": []any{1, "x", nil}}).SetTimerAfter(1500 * time.Millisecond).Done()
		})
		var authorization sync.Map
		handler := processor.Handler(recorder, processor.WithMiddleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				authorization.Store(r.Header.Get("Authorization"), r.ProtoMajor)
				next.ServeHTTP(w, r)
			})
		}))
		way.Headers = map[string]string{"authorization": "Bearer s3cret"}
		p := dialed(t, way, serve(t, handler).URL)
		resp, err := p.Process(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		want, _ := recorder.Process(t.Context(), request())
		if !proto.Equal(resp, want) {
			t.Errorf("answer %v, want %v", resp, want)
		}
		if got := recorder.Requests()[0]; !proto.Equal(got, request()) {
			t.Errorf("the processor got %v", got)
		}
		version, sent := authorization.Load("Bearer s3cret")
		if !sent {
			t.Error("the configured header was not sent")
		}
		if wantVersion := map[bool]int{true: 2, false: 1}[way.GetProtocol() == protocolGRPC]; version != wantVersion {
			t.Errorf("spoke HTTP/%v, want HTTP/%d", version, wantVersion)
		}
	})
}

func TestTLS(t *testing.T) {
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		server := httptest.NewUnstartedServer(processor.Handler(processor.Echo()))
		server.EnableHTTP2 = true
		server.Config.ErrorLog = slog.NewLogLogger(quiet.Handler(), slog.LevelWarn)
		server.StartTLS()
		t.Cleanup(server.Close)
		trusting := proto.CloneOf(way)
		trusting.Tls = &progressorv1.TargetTls{CaPem: string(pem.EncodeToMemory(
			&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))}
		p := dialed(t, trusting, server.URL)
		resp, err := p.Process(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.GetResult().GetResponse(); string(got) != string(request().GetArgs()) {
			t.Errorf("response %q", got)
		}
		if err := p.(*Processor).Reach(t.Context()); err != nil {
			t.Errorf("reach: %v", err)
		}
		// If the certificate of the server is not trusted, the request does not reach it.
		stranger := dialed(t, way, server.URL)
		if err := stranger.(*Processor).Reach(t.Context()); !processor.Unreachable(err) {
			t.Errorf("reach with an unknown certificate: %v", err)
		}
		if _, err := stranger.Process(t.Context(), request()); !processor.Unreachable(err) {
			t.Errorf("an unknown certificate: %v", err)
		}
	})
}

// TestOutcomes checks that answers of user code are returned, and that other errors are classified.
func TestOutcomes(t *testing.T) {
	tests := map[string]struct {
		answer      processor.Func
		reason      string // reason of the failure or rejection in the response
		unreachable bool
		badResponse bool
	}{
		"rejection": {answer: processortest.Err(processor.Reject("no", "not today")), reason: "no"},
		"failure":   {answer: processortest.Err(processor.Fail("broke", "it broke")), reason: "broke"},
		"error":     {answer: processortest.Err(errors.New("odd\xff\x00")), reason: processor.ReasonError},
		"panic": {answer: func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			panic("oh")
		}, reason: process.ReasonPanic},
		"code": {answer: processortest.Err(
			connect.NewError(connect.CodeUnavailable, errors.New("another service"))), reason: processor.ReasonError},
		"unreachable": {answer: processortest.Err(&processor.UnreachableError{Err: errors.New("warming up")}),
			unreachable: true},
		"nothing": {answer: func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, nil
		}, badResponse: true},
		"too large": {answer: processortest.Respond(make([]byte, process.MaxMessageBytes+1)),
			reason: process.ReasonBadResponse},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
				handler := processor.Handler(test.answer, processor.WithLogger(quiet))
				resp, err := dialed(t, way, serve(t, handler).URL).Process(t.Context(), request())
				if processor.Unreachable(err) != test.unreachable || processor.BadResponse(err) != test.badResponse {
					t.Fatalf("error %v", err)
				}
				if got := resp.GetFailure().GetReason() + resp.GetRejection().GetReason(); got != test.reason {
					t.Errorf("reason %q, want %q (%v, %v)", got, test.reason, resp, err)
				}
			})
		})
	}
}

// TestStatuses checks that 408, 429 and 503 mean that the request did not reach user code. Every
// other status is an invalid answer.
func TestStatuses(t *testing.T) {
	redirected := false
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/elsewhere") {
			redirected = true
		}
		status := map[string]int{
			"301": 301, "307": 307, "400": 400, "401": 401, "404": 404, "408": 408, "413": 413, "429": 429,
			"500": 500, "502": 502, "503": 503, "504": 504, "204": 204,
		}[strings.Split(r.URL.Path, "/")[1]]
		w.Header().Set("Location", "/elsewhere")
		if r.URL.Query().Has("json") || strings.HasSuffix(r.URL.Path, "/json/progressor.v1.ProcessorService/Process") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"message":"Endpoint request timed out"}`)
			return
		}
		w.WriteHeader(status)
	})
	server := serve(t, handler)
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		for _, status := range []string{"204", "301", "307", "400", "401", "404", "413", "500", "502", "504",
			"504/json", "502/json"} {
			_, err := dialed(t, way, server.URL+"/"+status).Process(t.Context(), request())
			if !processor.BadResponse(err) || processor.Unreachable(err) {
				t.Errorf("%s: %v", status, err)
			}
		}
		for _, status := range []string{"408", "429", "503", "503/json"} {
			_, err := dialed(t, way, server.URL+"/"+status).Process(t.Context(), request())
			if !processor.Unreachable(err) || processor.BadResponse(err) {
				t.Errorf("%s: %v", status, err)
			}
		}
	})
	if redirected {
		t.Error("a redirect was followed")
	}
}

func TestUnreadableJSON(t *testing.T) {
	tests := map[string]struct{ answer, says string }{
		"garbage":      {"<html>", "read the ProcessResponse"},
		"empty":        {"", "read the ProcessResponse"},
		"two values":   {`{"result":{}} {}`, "read the ProcessResponse"},
		"field":        {`{"result":{"respnse":"eA=="}}`, `"respnse"`},
		"two outcomes": {`{"result":{},"rejection":{}}`, "oneof"},
		"base64":       {`{"result":{"response":"%"}}`, "invalid value for bytes"},
		"digits": {`{"result":{"metadata":{"n":[1,9007199254740993]}}}`,
			"result.metadata.n[1]: the integer 9007199254740993"},
		"too large": {`{"result":{"response":"` + strings.Repeat("A", process.MaxMessageBytes) + `"}}`,
			"larger than"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := serve(t,
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = io.WriteString(w, test.answer)
				}))
			_, err := dialed(t, proto.CloneOf(ways["json"]), server.URL).Process(t.Context(), request())
			if !processor.BadResponse(err) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want one that contains %q", err, test.says)
			}
		})
	}
}

// TestPlainJSONRequest checks that the plain POST goes to the unchanged URL with a ProcessRequest
// as its body.
func TestPlainJSONRequest(t *testing.T) {
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got := &progressorv1.ProcessRequest{}
		if err := protojson.Unmarshal(body, got); err != nil || !proto.Equal(got, request()) {
			http.Error(w, "not the request", http.StatusTeapot)
			return
		}
		if r.Method != http.MethodPost || r.RequestURI != "/hooks/orders?v=2" ||
			r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "not as configured", http.StatusTeapot)
			return
		}
		_, _ = io.WriteString(w, `{"result":{"response":"eWVz","metadata":{"n":9007199254740992}}}`)
	}))
	resp, err := dialed(t, proto.CloneOf(ways["json"]), server.URL+"/hooks/orders?v=2").Process(t.Context(), request())
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.GetResult().GetResponse(); string(got) != "yes" {
		t.Errorf("response %q", got)
	}
}

func TestTooLargeOverRPC(t *testing.T) {
	for _, name := range []string{"connect", "grpc"} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
				if name == "grpc" {
					_, _ = w.Write([]byte{0, 2, 0, 0, 0}) // a frame of 32 MiB
				}
				_, _ = w.Write(make([]byte, process.MaxMessageBytes+1))
			}))
			_, err := dialed(t, proto.CloneOf(ways[name]), server.URL).Process(t.Context(), request())
			if !processor.BadResponse(err) || processor.Unreachable(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	open := dialed(t, &progressorv1.ConnectProcessor{MoreUrls: []string{url}}, "http://127.0.0.1:1")
	if err := open.(*Processor).Reach(t.Context()); err != nil {
		t.Errorf("reach by the second URL: %v", err)
	}
	_ = listener.Close() // the address no longer has a listener
	if err := open.(*Processor).Reach(t.Context()); !processor.Unreachable(err) {
		t.Errorf("reach of closed ports: %v", err)
	}
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		_, err := dialed(t, way, "http://"+listener.Addr().String()).Process(t.Context(), request())
		if !processor.Unreachable(err) {
			t.Errorf("error %v", err)
		}
	})
}

// TestBrokenConnection checks the error if a connection breaks after the request was read. It is a
// LostError, and reports neither an unreachable processor nor an invalid answer.
func TestBrokenConnection(t *testing.T) {
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		calls := 0
		server := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			calls++
			panic(http.ErrAbortHandler)
		}))
		_, err := dialed(t, way, server.URL).Process(t.Context(), request())
		if _, lost := errors.AsType[*processor.LostError](err); !lost || processor.Unreachable(err) ||
			processor.BadResponse(err) {
			t.Errorf("error %v", err)
		}
		if got := processor.FailureOf(err).GetReason(); got != process.ReasonUnavailable {
			t.Errorf("reason %q", got)
		}
		server.Close()
		if calls != 1 {
			t.Errorf("the request was sent %d times", calls)
		}
	})
}

// TestBrokenAnswer checks that the error is a LostError if a connection ends after the answer has
// begun.
func TestBrokenAnswer(t *testing.T) {
	for _, name := range []string{"connect", "json", "msgpack"} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
				w.Header().Set("Content-Length", "1000")
				_, _ = io.WriteString(w, "{")
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}))
			_, err := dialed(t, proto.CloneOf(ways[name]), server.URL).Process(t.Context(), request())
			if _, lost := errors.AsType[*processor.LostError](err); !lost {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestLargeHeaders checks that the headers of a response have a limit.
func TestLargeHeaders(t *testing.T) {
	for _, name := range []string{"connect", "json", "msgpack"} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Large", strings.Repeat("x", 2*maxHeaderBytes))
			}))
			_, err := dialed(t, proto.CloneOf(ways[name]), server.URL).Process(t.Context(), request())
			if _, lost := errors.AsType[*processor.LostError](err); !lost {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestDeadline checks that the attempt ends with its context, and that the context of the processor
// also ends.
func TestDeadline(t *testing.T) {
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		recorder := processortest.NewRecorder(processortest.Hang)
		p := dialed(t, way, serve(t, processor.Handler(recorder)).URL)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		if _, err := p.Process(ctx, request()); !errors.Is(err, context.DeadlineExceeded) ||
			processor.Unreachable(err) {
			t.Errorf("error %v", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		go func() {
			_, _ = recorder.Next(t.Context())
			_, _ = recorder.Next(t.Context())
			cancel()
		}()
		if _, err := p.Process(ctx, request()); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if err := recorder.Idle(t.Context()); err != nil {
			t.Errorf("the processor continues: %v", err)
		}
	})
}

// TestConnectionsAreKept checks that one connection is kept per concurrent attempt.
func TestConnectionsAreKept(t *testing.T) {
	for _, name := range []string{"connect", "json", "msgpack"} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			opened := 0
			recorder := processortest.NewRecorder(nil)
			server := httptest.NewUnstartedServer(processor.Handler(recorder))
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					mu.Lock()
					opened++
					mu.Unlock()
				}
			}
			server.Start()
			t.Cleanup(server.Close)
			p := dialed(t, proto.CloneOf(ways[name]), server.URL)
			for range 3 {
				release := recorder.Hold()
				var calls sync.WaitGroup
				for range 8 {
					calls.Go(func() {
						if _, err := p.Process(t.Context(), request()); err != nil {
							t.Error(err)
						}
					})
				}
				for range 8 {
					if _, err := recorder.Next(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				release()
				calls.Wait()
			}
			mu.Lock()
			defer mu.Unlock()
			if opened < 8 || opened > 12 { // a connection that was opened while another one became free may remain
				t.Errorf("%d connections for three rounds of 8 calls at a time", opened)
			}
		})
	}
}

func TestAddressPolicy(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "10.1.2.3": true, "192.168.0.9": true, "172.16.0.1": true, "8.8.8.8": true,
		"fd12::1":         true,
		"169.254.169.254": false, "169.254.0.1": false, "fe80::1": false, "fe80::1%eth0": false, "febf::1": false,
		"::ffff:169.254.169.254": false, "64:ff9b::a9fe:a9fe": false, "fd00:ec2::254": false, "100.100.100.200": false,
		"fd00:ec2:0:1::23": false, "64:ff9b:1::a9fe:a9fe": false, "2002:a9fe:a9fe::1": false, "::a9fe:a9fe": false,
		"192.0.0.192": false, "192.0.0.170": false, "::": true, "0.0.0.0": true, "fd00:ec3::1": true,
		"2001:db8::1":   true,
		"168.63.129.16": false, "224.0.0.1": false, "ff02::1": false,
	} {
		if err := Allowed(netip.MustParseAddr(addr)); (err == nil) != want {
			t.Errorf("%s: %v", addr, err)
		}
	}
	// The dialer also checks resolved addresses.
	if err := Control(t.Context(), "tcp4", "169.254.169.254:80", nil); err == nil {
		t.Error("the dialer accepts a metadata address")
	}
	if err := Control(t.Context(), "tcp4", "127.0.0.1:80", nil); err != nil {
		t.Error(err)
	}
}
