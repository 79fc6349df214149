package rpc

import (
	"mime"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzLoginCookie sends requests like a browser with a login that pages of other sites control.
// Only what the page of the console can send is served.
func FuzzLoginCookie(f *testing.F) {
	s := newLoginSite(f, ConsoleFull, "staff")
	b := s.browser(f)
	b.visit(s.url + "/login")
	token := b.cookie(loginCookie)
	for _, seed := range [][5]string{
		{token, s.url, "same-origin", "application/json", http.MethodPost},
		{token, s.url, "", "application/connect+json; charset=utf-8", http.MethodPost},
		{token, s.url, "cross-site", "application/json", http.MethodPost},
		{token, s.url + ".evil.example", "same-origin", "application/json", http.MethodPost},
		{token, "null", "", "text/plain;application/json", http.MethodPost},
		{token, s.url, "same-origin", "application/json", http.MethodGet},
		{token + "; " + loginCookie + "=" + token, s.url, "same-origin", "application/json", http.MethodPost},
		{s.token, s.url, "same-origin", "application/json", http.MethodPost},
		{strings.ToUpper(token), s.url, "same-origin", "application/json", http.MethodPost},
		{`"` + token + `"`, strings.ToUpper(s.url), "same-origin", "application/json", http.MethodPost},
		{"pgl__", "", "", "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4])
	}
	f.Fuzz(func(t *testing.T, cookie, origin, site, kind, method string) {
		r := httptest.NewRequest(http.MethodPost, whoamiPath, strings.NewReader("{}"))
		r.Method, r.Host = method, strings.TrimPrefix(s.url, "https://")
		r.Header = http.Header{"Cookie": {loginCookie + "=" + cookie}, "Content-Type": {kind}}
		if origin != "" {
			r.Header["Origin"] = []string{origin}
		}
		if site != "" {
			r.Header["Sec-Fetch-Site"] = []string{site}
		}
		w := httptest.NewRecorder()
		s.server.Config.Handler.ServeHTTP(w, r)
		media, _, err := mime.ParseMediaType(kind)
		isJSON := err == nil && (media == "application/json" || media == "application/connect+json")
		own := method == http.MethodPost && origin == s.url && (site == "" || site == "same-origin") && isJSON
		if own && cookie == token && w.Code != http.StatusOK {
			t.Errorf("the page of the console gets %d %s", w.Code, w.Body)
		}
		if w.Code == http.StatusOK && (!own || !strings.Contains(cookie, token)) {
			t.Errorf("%q from %q (%q) with %q and %q: %d %s", method, origin, site, kind, cookie, w.Code, w.Body)
		}
	})
}
