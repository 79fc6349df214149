package rpc

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
)

// newStub serves scripted services behind the complete handler.
func newStub(t *testing.T, cfg Config) *site {
	t.Helper()
	h, err := newHandler(cfg, scripted(echo()), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return &site{url: listen(t, h)}
}

// asked sends a request with headers, and returns the response and its body.
func asked(t *testing.T, method, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(headers); n += 2 {
		r.Header.Set(headers[n], headers[n+1])
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(body)
}

// Clients that accept HTML get the console with its content policy, and the files that it loads.
// Other clients get the plain page.
func TestConsoleIsServed(t *testing.T) {
	t.Parallel()
	s := newStub(t, Config{Version: "v1<2", Console: ConsoleReadOnly})
	answer, body := asked(t, http.MethodGet, s.url+"/", "Accept", "text/html,*/*")
	if !strings.Contains(body, `data-mode="read-only"`) || !strings.Contains(body, `data-version="v1&lt;2"`) {
		t.Errorf("the mode or the version is missing: %s", body)
	}
	policy := answer.Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") ||
		answer.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers: %v", answer.Header)
	}
	if strings.Contains(body, "<style") || strings.Contains(body, "<script>") || strings.Contains(body, "://") {
		t.Errorf("the page has inline content or loads from another host: %s", body)
	}
	_, script, _ := strings.Cut(body, `src="./`)
	script, _, _ = strings.Cut(script, `"`)
	answer, body = asked(t, http.MethodGet, s.url+"/"+script)
	if answer.StatusCode != http.StatusOK || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/javascript") ||
		len(body) < 100_000 ||
		!strings.Contains(answer.Header.Get("Cache-Control"), "immutable") {
		t.Errorf("%s: %s, %d bytes, %v", script, answer.Status, len(body), answer.Header)
	}
	answer, packed := asked(t, http.MethodGet, s.url+"/"+script, "Accept-Encoding", "gzip, br")
	if answer.Header.Get("Content-Encoding") != "gzip" || len(packed) > len(body)/2 {
		t.Errorf("%d of %d bytes, %v", len(packed), len(body), answer.Header)
	}
	answer, _ = asked(t, http.MethodGet, s.url+"/"+script, "If-None-Match", answer.Header.Get("ETag"),
		"Accept-Encoding", "gzip")
	if answer.StatusCode != http.StatusNotModified {
		t.Errorf("a request with the ETag: %s", answer.Status)
	}
	if _, body = asked(t, http.MethodGet, s.url+"/"); !strings.HasPrefix(body, "progressor v1<2") {
		t.Errorf("without text/html: %s", body)
	}
	off := newStub(t, Config{Version: "v1", Console: ConsoleOff})
	if _, body = asked(t, http.MethodGet, off.url+"/", "Accept", "text/html"); !strings.HasPrefix(body,
		"progressor v1") {
		t.Errorf("off: %s", body)
	}
}

func TestConsoleNeedsItsIndex(t *testing.T) {
	t.Parallel()
	if _, err := consoleFiles(fstest.MapFS{"favicon.svg": {Data: []byte("<svg/>")}}, ConsoleFull, "v"); err == nil {
		t.Error("built files without an index.html were accepted")
	}
}

// Requests of other sites are rejected. A read-only console may send only reads. Other programs are
// not restricted.
func TestBrowsersAreGuarded(t *testing.T) {
	t.Parallel()
	full, shown := newStub(t, Config{}), newStub(t, Config{Console: ConsoleReadOnly})
	for _, tt := range []struct {
		name, url, method string
		headers           []string
		refused           bool
	}{
		{"a program", shown.url, "ProcessService/RemoveProcess", nil, false},
		{"its own page", full.url, "ProcessService/RemoveProcess",
			[]string{"Origin", full.url, "Sec-Fetch-Site", "same-origin"}, false},
		{"its own page without the newer header", full.url, "ProcessService/RemoveProcess",
			[]string{"Origin", full.url}, false},
		{"another site", full.url, "ProcessService/GetProcess", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, true},
		{"another site in an old browser", full.url, "ProcessService/GetProcess", []string{"Origin", "https://evil.example"}, true},
		{"another port of this machine", full.url, "ProcessService/GetProcess", []string{"Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site"}, true},
		{"read-only: reads", shown.url, "ProcessService/GetProcess",
			[]string{"Origin", shown.url, "Sec-Fetch-Site", "same-origin"}, false},
		{"read-only: changes", shown.url, "ProcessService/RemoveProcess",
			[]string{"Origin", shown.url, "Sec-Fetch-Site", "same-origin"}, true},
		{"read-only: changes, without the newer header", shown.url, "BulkService/StartBulk",
			[]string{"Origin", shown.url}, true},
		{"read-only: fetching a result deletes it", shown.url, "JobService/FetchResult", []string{"Origin", shown.url},
			true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			answer, body := asked(t, http.MethodPost, tt.url+"/progressor.v1."+tt.method,
				append([]string{"Content-Type", "application/json"}, tt.headers...)...)
			if refused := answer.StatusCode == http.StatusForbidden; refused != tt.refused ||
				refused && !strings.Contains(body, "permission_denied") {
				t.Errorf("%s: %s", answer.Status, body)
			}
		})
	}
	// A text/plain request, which a form of another site could send without a preflight request, is
	// rejected.
	if answer, _ := asked(t, http.MethodPost, full.url+"/progressor.v1.ProcessService/RemoveProcess", "Content-Type",
		"text/plain"); answer.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("text/plain: %s", answer.Status)
	}
}
