package processor_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const connectPath = "/progressor.v1.ProcessorService/Process"

// TestHandlerReadsStrictly sends requests in JSON and MessagePack, at / and in the Connect
// protocol. The handler rejects unknown fields, unknown values of enums, other content types and
// requests that are too large.
func TestHandlerReadsStrictly(t *testing.T) {
	recorder := processortest.NewRecorder(processortest.Respond([]byte("yes")))
	server := httptest.NewServer(processor.Handler(recorder))
	defer server.Close()
	const good = `{"type":"TASK_TYPE_CALL","args":"AQI=","taskId":"1152921504606846976",` +
		`"process":{"namespace":"shop","processId":"a"}}`
	tests := map[string]struct {
		path, contentType, body string
		status                  int
		want                    string // part of the response body
	}{
		"good":            {"/", "application/json", good, 200, `"response":"eWVz"`},
		"charset":         {"/", "application/json; charset=UTF-8", good, 200, `"eWVz"`},
		"connect":         {connectPath, "application/json", good, 200, `"eWVz"`},
		"connect charset": {connectPath, "application/json; charset=utf-8", good, 200, `"eWVz"`},
		"content type":    {"/", "text/plain", good, 415, "application/json"},
		"no content type": {"/", "", good, 415, "application/json"},
		"latin":           {"/", "application/json; charset=latin1", good, 415, "application/json"},
		"field":           {"/", "application/json", `{"tsk":1}`, 400, `"tsk"`},
		"connect field":   {connectPath, "application/json", `{"tsk":1}`, 400, `tsk`},
		"connect field 2": {connectPath, "application/json; charset=utf-8", `{"tsk":1}`, 400, `tsk`},
		"enum":            {"/", "application/json", `{"type":"TASK_TYPE_FOREVER"}`, 400, `FOREVER`},
		"no JSON":         {"/", "application/json", `{`, 400, `read the ProcessRequest`},
		"empty":           {"/", "application/json", ``, 400, `read the ProcessRequest`},
		"msgpack": {"/", "application/msgpack", "\x82\xa4type\xaeTASK_TYPE_CALL\xa4args\xc4\x01\xff", 200,
			"\x81\xa6result\x81\xa8response\xc4\x03yes"},
		"msgpack connect": {connectPath, "application/msgpack", "\x80", 200, "\xc4\x03yes"},
		"msgpack field":   {"/", "application/msgpack", "\x81\xa3tsk\x01", 400, `tsk: unknown field`},
		"msgpack field 2": {connectPath, "application/msgpack", "\x81\xa3tsk\x01", 400, `tsk: unknown field`},
		"msgpack empty":   {"/", "application/msgpack", "", 400, `send the byte 0x80`},
		"another path":    {"/other", "application/json", good, 404, ``},
		"too large": {"/", "application/json",
			`{"args":"` + strings.Repeat("A", process.MaxMessageBytes/3*4) + `"}`, 413, `too large`},
		"connect too large": {connectPath, "application/json",
			`{"args":"` + strings.Repeat("A", process.MaxMessageBytes) + `"}`, 429, `resource_exhausted`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+test.path,
				strings.NewReader(test.body))
			req.Header.Set("Content-Type", test.contentType)
			status, body := do(t, req)
			if status != test.status ||
				!strings.Contains(strings.ReplaceAll(body, " ", ""), strings.ReplaceAll(test.want, " ", "")) {
				t.Errorf("%d %s, want %d %s", status, body, test.status, test.want)
			}
		})
	}
	// A task_id above 2^53 does not lose digits. The four valid requests in JSON contain such an
	// ID.
	var exact int
	for _, r := range recorder.Requests() {
		if r.GetTaskId() == 1<<60 {
			exact++
		}
	}
	if exact != 4 {
		t.Errorf("%d of 4 requests had the exact task_id", exact)
	}
	get, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if status, _ := do(t, get); status != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", status)
	}
	http.DefaultClient.CloseIdleConnections()
}

func do(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func post(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"type":"TASK_TYPE_CALL"}`))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	answer := &progressorv1.ProcessResponse{}
	return string(answer.GetResult().GetResponse()),
		errors.Join(protojson.Unmarshal(body, answer), expect(answer, "yes"))
}

func expect(answer *progressorv1.ProcessResponse, want string) error {
	if got := string(answer.GetResult().GetResponse()); got != want {
		return errors.New("answered " + got)
	}
	return nil
}

// TestServeStops stops a server that has a running request. The request finishes, new connections
// are refused, and ServeOn returns nil.
func TestServeStops(t *testing.T) {
	recorder := processortest.NewRecorder(processortest.Respond([]byte("yes")))
	release := recorder.Hold()
	listener := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- processor.ServeOn(ctx, listener, recorder) }()
	answered := make(chan error, 1)
	url := "http://" + listener.Addr().String()
	go func() {
		_, err := post(t.Context(), url)
		answered <- err
	}()
	if _, err := recorder.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	for { // the listener is closed in the background
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	release()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestServeCutsOff stops a server whose request does not finish within the stop timeout. The
// request is cancelled, its client gets no response, and ServeOn returns an error that names the
// timeout.
func TestServeCutsOff(t *testing.T) {
	recorder := processortest.NewRecorder(processortest.Hang)
	listener := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- processor.ServeOn(ctx, listener, recorder, processor.WithStopTimeout(10*time.Millisecond))
	}()
	answered := make(chan error, 1)
	go func() {
		_, err := post(t.Context(), "http://"+listener.Addr().String())
		answered <- err
	}()
	if _, err := recorder.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-served; err == nil || !strings.Contains(err.Error(), "10ms") {
		t.Errorf("Serve: %v", err)
	}
	if err := <-answered; err == nil {
		t.Error("the client of the cancelled request got a response")
	}
	if err := recorder.Idle(t.Context()); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestServeCannotListen(t *testing.T) {
	listener := listen(t)
	defer func() { _ = listener.Close() }()
	err := processor.Serve(t.Context(), listener.Addr().String(), processor.Echo())
	if err == nil || !strings.Contains(err.Error(), "serve processor") {
		t.Errorf("error %v", err)
	}
}

// The first middleware is the outermost one. A middleware can reject a request.
func TestMiddleware(t *testing.T) {
	order := []string{}
	wrap := func(name string) processor.Option {
		return processor.WithMiddleware(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				order = append(order, name)
				if r.Header.Get("Authorization") == "" && name == "inner" {
					http.Error(w, "Authorization is missing", http.StatusUnauthorized)
					return
				}
				next.ServeHTTP(w, r)
			})
		})
	}
	handler := processor.Handler(processor.Echo(), wrap("outer"), wrap("inner"),
		processor.WithLogger(slog.New(slog.DiscardHandler)))
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", nil))
	if answer.Code != http.StatusUnauthorized || strings.Join(order, " ") != "outer inner" {
		t.Errorf("%d %v", answer.Code, order)
	}
}

// Echo returns the args, stores them as the state, and appends an event.
func TestEcho(t *testing.T) {
	p := processortest.New(processor.Echo())
	for i, step := range []func(context.Context, []byte, ...processortest.RequestOption) ([]byte, error){p.Start,
		p.Call} {
		args := []byte{byte(i), 0xff}
		response, err := step(t.Context(), args)
		if err != nil || string(response) != string(args) || string(p.State()) != string(args) ||
			len(p.Events()) != i+1 {
			t.Errorf("%d: %q, %v, %v", i, response, err, p.Snapshot())
		}
	}
	// Without args, the state becomes empty and does not stay unchanged.
	if _, err := p.Call(t.Context(), nil); err != nil || len(p.State()) != 0 {
		t.Errorf("%v %q", err, p.State())
	}
	if _, err := p.Call(t.Context(), []byte("kept")); err != nil {
		t.Error(err)
	}
	events := len(p.Events())
	if err := p.Cancel(t.Context(), "no more"); err != nil || string(p.State()) != "kept" ||
		string(p.Events()[events].GetPayload()) != "no more" {
		t.Errorf("%v %q %v", err, p.State(), p.Events())
	}
}

func TestBench(t *testing.T) {
	noop := processortest.New(processor.BenchNoop())
	response, err := noop.Start(t.Context(), nil)
	if err != nil || len(response) != 100 || len(noop.State()) != 200 || len(noop.Events()[0].GetPayload()) != 200 {
		t.Errorf("%d %v %v", len(response), err, noop.Snapshot())
	}
	loop := processortest.New(processor.BenchLoop())
	if _, err := loop.Start(t.Context(), []byte("12")); err == nil {
		t.Error("BenchLoop accepts args that are not a number of 8 bytes")
	}
	if _, err := loop.Start(t.Context(), processor.LoopArgs(25)); err != nil {
		t.Fatal(err)
	}
	left := binary.BigEndian.Uint64(loop.State())
	if left != 0 || len(loop.Events()) != 26 || loop.Status() != process.StatusCompleted {
		t.Errorf("%d left, %d events, %s", left, len(loop.Events()), loop.Status())
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}
