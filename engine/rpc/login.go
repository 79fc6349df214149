package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"html/template"
	"mime"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/engine/auth/oidc"
	"github.com/progressor-engine/progressor/process"
)

// The cookies of the console. Because of their prefix, other hosts of the same domain cannot set
// them.
const (
	loginCookie   = "__Host-progressor"
	attemptCookie = "__Host-progressor-login"
)

// hasLogin reports whether a request has the cookie of a login and this console has logins.
func hasLogin(a *auth.Authenticator, r *http.Request) bool {
	return a.Origin() != "" && len(r.CookiesNamed(loginCookie)) > 0
}

// authenticateLogin returns the principal of a request with the cookie of a login. A browser adds
// the cookie to every request, so it is accepted only for requests that the console itself sends.
func authenticateLogin(ctx context.Context, a *auth.Authenticator, r *http.Request) (*auth.Principal, error) {
	if err := checkLogin(a, r); err != nil {
		return nil, a.RejectLogin(ctx, err, r.RemoteAddr)
	}
	return a.AuthenticateLogin(ctx, r.CookiesNamed(loginCookie)[0].Value, r.RemoteAddr)
}

// checkLogin returns an error unless the console may have sent a request.
func checkLogin(a *auth.Authenticator, r *http.Request) error {
	if len(r.Header["Authorization"]) > 0 || certificateURI(r) != "" {
		return auth.ErrTwoLogins
	}
	return checkPage(a, r)
}

// checkPage is like checkLogin, but also accepts a request with a token or a certificate.
func checkPage(a *auth.Authenticator, r *http.Request) error {
	origin, site := r.Header["Origin"], r.Header["Sec-Fetch-Site"]
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case len(r.CookiesNamed(loginCookie)) != 1, r.Method != http.MethodPost,
		err != nil || kind != "application/json" && kind != "application/connect+json",
		len(origin) != 1 || origin[0] != a.Origin(),
		len(site) > 1 || len(site) == 1 && site[0] != "same-origin":
		return auth.ErrCookie
	}
	return nil
}

// loginPages serves the pages for logins to and logouts from the console.
type loginPages struct {
	auth        *auth.Authenticator // nil if all clients may do everything
	errorWriter *connect.ErrorWriter
}

// mountLogin serves the login to the console, and the identity of its user.
func mountLogin(
	mux *http.ServeMux, a *auth.Authenticator, errorWriter *connect.ErrorWriter,
	private func(http.Handler) http.Handler,
) {
	l := &loginPages{a, errorWriter}
	mux.HandleFunc("GET /login", l.begin)
	mux.HandleFunc("GET /login/options", l.options)
	mux.HandleFunc("GET "+auth.CallbackPath, l.finish)
	mux.HandleFunc("GET "+auth.CallbackPath+"/{name}", l.finish)
	mux.Handle("POST /logout", limitBody(http.HandlerFunc(l.end)))
	mux.Handle("POST /whoami", limitBody(private(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { answerJSON(w, identityOf(r.Context())) }))))
}

// ofConsole reports whether the console sends a POST to this path even if the console is read-only.
func ofConsole(path string) bool { return path == "/logout" || path == "/whoami" }

// options returns the issuers at which users can log in.
func (l *loginPages) options(w http.ResponseWriter, _ *http.Request) {
	console, options := l.auth.Options()
	answerJSON(w, map[string]any{"url": console, "issuers": append([]auth.LoginOption{}, options...)})
}

// choice is the page of a login if there are several issuers.
var choice = template.Must(template.New("choice").Parse(`<!doctype html>
<html lang="en">
<title>Log in · Progressor</title>
<h1>Log in to Progressor</h1>
<ul>
{{- range .Options}}
<li><a href="{{$.URL}}/login?issuer={{.Name}}&amp;to={{$.To}}">Log in with {{.Host}}</a> ({{.Name}})</li>
{{- end}}
</ul>
</html>
`))

// begin sends a browser to the issuer of its user.
func (l *loginPages) begin(w http.ResponseWriter, r *http.Request) {
	secure(w)
	q := r.URL.Query()
	console, options := l.auth.Options()
	name, to := q.Get("issuer"), q.Get("to")
	if to == "" {
		to = "/"
	}
	switch {
	case len(options) == 0:
		l.refuse(w, auth.ErrNoLogins)
		return
	case certificateURI(r) != "":
		l.refuse(w, auth.ErrHasCertificate)
		return
	case !q.Has("issuer") && len(options) > 1:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		// The client may have disconnected.
		_ = choice.Execute(w, map[string]any{"URL": console, "To": to, "Options": options})
		return
	case !q.Has("issuer"):
		name = options[0].Name
	}
	target, kept, err := l.auth.BeginLogin(r.Context(), name, to, r.RemoteAddr)
	if err != nil {
		l.refuse(w, err)
		return
	}
	setCookie(w, attemptCookie, kept, auth.AttemptTime)
	http.Redirect(w, r, target, http.StatusSeeOther)
}

// finish logs in a user who comes back from an issuer.
func (l *loginPages) finish(w http.ResponseWriter, r *http.Request) {
	secure(w)
	if l.auth.Origin() == "" {
		l.refuse(w, auth.ErrNoLogins)
		return
	}
	token, page, err := l.auth.FinishLogin(r.Context(), r.PathValue("name"), cookieOf(r, attemptCookie),
		r.URL.Query(), cookieOf(r, loginCookie), r.RemoteAddr)
	if !errors.Is(err, oidc.ErrState) && !limited(err) { // another tab or a reload may have ended the attempt
		setCookie(w, attemptCookie, "", -1) // an answer is used once
	}
	if err != nil {
		l.refuse(w, err)
		return
	}
	setCookie(w, loginCookie, token, l.auth.Lifetime())
	http.Redirect(w, r, page, http.StatusSeeOther)
}

// cookieOf returns the value of the only cookie with the given name, or "".
func cookieOf(r *http.Request, name string) string {
	if cookies := r.CookiesNamed(name); len(cookies) == 1 {
		return cookies[0].Value
	}
	return ""
}

// end logs a user out.
func (l *loginPages) end(w http.ResponseWriter, r *http.Request) {
	if !hasLogin(l.auth, r) {
		answerJSON(w, struct{}{})
		return
	}
	err := checkPage(l.auth, r) // a request with a token or a certificate does not use the login, but may end it
	if err != nil {
		refuseUnauthenticated(w, r, l.errorWriter, l.auth.RejectLogin(r.Context(), err, r.RemoteAddr))
		return
	}
	err = l.auth.EndLogin(r.Context(), r.CookiesNamed(loginCookie)[0].Value, r.RemoteAddr)
	if err != nil && !errors.Is(err, auth.ErrLogin) { // ErrLogin: the login has already ended
		refuseUnauthenticated(w, r, l.errorWriter, err)
		return
	}
	setCookie(w, loginCookie, "", -1)
	answerJSON(w, struct{}{})
}

// refuse shows the user why a login has failed.
func (l *loginPages) refuse(w http.ResponseWriter, err error) {
	status := http.StatusForbidden
	switch {
	case errors.Is(err, auth.ErrNoLogins):
		status = http.StatusNotFound
	case errors.Is(err, auth.ErrPage):
		status = http.StatusBadRequest
	case limited(err):
		status = http.StatusTooManyRequests
	case errors.Is(err, auth.ErrNoAnswer):
		status, err = http.StatusServiceUnavailable, auth.ErrNoAnswer
	case errors.Is(err, process.ErrUnavailable):
		status, err = http.StatusServiceUnavailable, process.ErrUnavailable // without the error of the database
	}
	text := err.Error()
	if console, _ := l.auth.Options(); console != "" {
		text += "\n\nLog in again: " + console + "/login"
	}
	page(w, status, text)
}

// limited reports whether a login was rejected because of a limit.
func limited(err error) bool {
	return errors.Is(err, auth.ErrLimited) || errors.Is(err, auth.ErrBusy) || errors.Is(err, auth.ErrManyLogins) ||
		errors.Is(err, auth.ErrManyOfUser)
}

// setCookie sets a cookie that scripts cannot read, or deletes it if age is negative.
func setCookie(w http.ResponseWriter, name, value string, age time.Duration) {
	c := &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(age.Seconds()), Secure: true, HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
	}
	if age < 0 {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// secure sets the headers of a page that must not be stored or framed, and whose address must not
// be sent to other sites.
func secure(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", strings.ReplaceAll(contentPolicy, "'self'", "'none'"))
}

func answerJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(value) // the client may have disconnected
}
