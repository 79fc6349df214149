package rpc

import (
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/storage"
)

// loginProcedure is a method that rejects the request {} as invalid.
const loginProcedure = "/progressor.v1.ProcessService/Start"

// fuzzed returns a request to a handler. It omits headers that are "".
func fuzzed(method, path, host string, headers map[string]string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))
	r.Method, r.Host = method, host
	for name, value := range headers {
		if value != "" {
			r.Header[name] = []string{value}
		}
	}
	return r
}

// refused reports whether an answer states that the client may not send its request. For streams of
// Connect and for gRPC, such an answer has the status 200.
func refused(w *httptest.ResponseRecorder) bool {
	switch w.Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusMethodNotAllowed:
		return true
	}
	h := w.Header()
	return h.Get("Grpc-Status") != "" && h.Get("Grpc-Status") != "0" ||
		strings.HasPrefix(h.Get("Content-Type"), "application/connect+") &&
			strings.Contains(w.Body.String(), `{"error":{"code":"`)
}

// FuzzLoginCookie sends the requests of a browser that has a login. Pages of other sites control
// these requests. A request is served only if the console could have sent it. HOST in an input
// means the host of the console, which differs for each process of go test -fuzz.
func FuzzLoginCookie(f *testing.F) {
	s := newLoginSite(f, ConsoleFull, "staff")
	token := "pgl_fuzz_" + strings.Repeat("5a", 32)
	hash := auth.Hash(token)
	s.rows.rows["fuzz"] = storage.NewLogin{
		LoginID: "fuzz", Hash: hash[:], Principal: "user:" + s.issuers[0].URL + "#alice",
	}
	const own, same, kind, post = "https://HOST", "same-origin", "application/json", http.MethodPost
	for _, seed := range [][6]string{
		{loginCookie + "=" + token, own, same, kind, post, ""},
		{loginCookie + "=" + token, own, "", "application/connect+json; charset=utf-8", post, ""},
		{"a=b; " + loginCookie + "=" + token + "; c=d", own, same, kind, post, ""},
		{loginCookie + "=" + token, own, "cross-site", kind, post, ""},
		{loginCookie + "=" + token, own + ".evil.example", same, kind, post, ""},
		{loginCookie + "=" + token, "http://HOST", "", kind, post, ""},
		{loginCookie + "=" + token, "null", "", "text/plain;application/json", post, ""},
		{loginCookie + "=" + token, own, same, kind, http.MethodGet, ""},
		{loginCookie + "=" + token, own, same, kind, post, "Bearer pgr_fuzz_" + strings.Repeat("5a", 32)},
		{loginCookie + "=" + token + "; " + loginCookie + "=" + token, own, same, kind, post, ""},
		{loginCookie + "=" + strings.ToUpper(token), own, same, kind, post, ""},
		{loginCookie + `="` + token + `"`, "HTTPS://HOST", same, kind, post, ""},
		{"__host-progressor=" + token, own, same, kind, post, ""},
		{loginCookie + "=pgl__", "", "", "", "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], seed[5])
	}
	host := strings.TrimPrefix(s.url, "https://")
	answer := func(method, path string, headers map[string]string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.server.Config.Handler.ServeHTTP(w, fuzzed(method, path, host, headers))
		return w
	}
	// This request caches the login, so that the login is accepted while other inputs use up the
	// limits.
	first := map[string]string{"Cookie": loginCookie + "=" + token, "Origin": s.url, "Content-Type": kind}
	if w := answer(post, whoamiPath, first); w.Code != http.StatusOK {
		f.Fatalf("%d %s", w.Code, w.Body)
	}
	f.Fuzz(func(t *testing.T, cookie, origin, site, kind, method, authorization string) {
		origin = strings.ReplaceAll(origin, "HOST", host)
		headers := map[string]string{
			"Cookie": cookie, "Origin": origin, "Sec-Fetch-Site": site, "Content-Type": kind,
			"Authorization": authorization,
		}
		media, _, err := mime.ParseMediaType(kind)
		fromConsole := method == http.MethodPost && origin == s.url && (site == "" || site == "same-origin") &&
			err == nil && (media == "application/json" || media == "application/connect+json") && authorization == ""
		var w *httptest.ResponseRecorder
		// A failed authentication takes 100 ms, which are skipped in this test.
		synctest.Test(t, func(*testing.T) { w = answer(method, whoamiPath, headers) })
		known := !refused(w)
		if fromConsole && cookie == loginCookie+"="+token && !known {
			t.Errorf("the page of the console gets %d %s", w.Code, w.Body)
		}
		if known && (!fromConsole || !strings.Contains(cookie, token)) {
			t.Errorf("%q from %q (%q) with %q, %q and %q: %d %s", method, origin, site, kind, cookie, authorization,
				w.Code, w.Body)
		}
		if known && refused(answer(method, loginProcedure, headers)) {
			t.Errorf("the page with the cookie %q may not call methods", cookie)
		}
	})
}

// FuzzOrigin sends requests like browsers with pages of other sites, to an engine without
// authentication. Only requests to one of the names of the engine are served. A request that
// changes something is served only if it comes from a page of the engine or from no page and, if
// the console is read-only, only if it comes from no page.
func FuzzOrigin(f *testing.F) {
	handlers := map[Console]http.Handler{}
	for _, mode := range []Console{ConsoleFull, ConsoleReadOnly} {
		h, err := newHandler(Config{Hosts: testHosts(f), Console: mode}, scripted(echo()), func() error { return nil })
		if err != nil {
			f.Fatal(err)
		}
		handlers[mode] = h
	}
	for _, seed := range [][4]string{
		{"localhost:80", "", "", http.MethodPost}, {"localhost", "http://localhost", "", http.MethodPost},
		{"127.0.0.1:8080", "http://127.0.0.1:8080", "same-origin", http.MethodPost},
		{"127.0.0.1:8080", "http://127.0.0.1:9090", "", http.MethodPost},
		{"127.0.0.1:8080", "http://127.0.0.1:8080", "same-site", http.MethodPost},
		{"127.0.0.1", "null", "", http.MethodPost}, {"[::1]", "http://[::1]", "none", http.MethodPost},
		{"evil.example", "http://evil.example", "same-origin", http.MethodPost},
		{"progressor.example.com", "http://x@progressor.example.com", "", http.MethodPost},
		{"progressor.example.com", "https://progressor.example.com.evil.example", "", http.MethodPut},
		{"", "", "", "OPTIONS"}, {"x.svc.cluster.local.", "http://x.svc.cluster.local", "cross-site", "GET"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, host, origin, site, method string) {
		for mode, handler := range handlers {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, fuzzed(method, callPath, host, map[string]string{
				"Origin": origin, "Sec-Fetch-Site": site, "Content-Type": "application/json",
			}))
			if w.Code != http.StatusOK || refused(w) {
				continue
			}
			from, err := url.Parse(origin)
			ofSite := origin == "" || err == nil && from.Host == host
			fromPage := origin != "" || site != ""
			if !allowedName(host) || method != http.MethodPost || mode == ConsoleReadOnly && fromPage ||
				!slices.Contains([]string{"", "same-origin", "none"}, site) || site == "" && !ofSite {
				t.Errorf("%s: %q to %q from %q (%q): %d %s", mode, method, host, origin, site, w.Code, w.Body)
			}
		}
	})
}
