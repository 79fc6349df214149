package rpc

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// principalKey is the key of the *auth.Principal in the context of a request.
type principalKey struct{}

// principalOf returns the principal of a request, or nil without authentication.
func principalOf(ctx context.Context) *auth.Principal {
	p, _ := ctx.Value(principalKey{}).(*auth.Principal)
	return p
}

// viewOf returns the Principal.View of a request, or "" without authentication.
func viewOf(ctx context.Context) string {
	if p := principalOf(ctx); p != nil {
		return p.View()
	}
	return ""
}

// authenticated passes only requests with a valid token to next, with their principal in the
// context. It does not read the body of other requests. A nil Authenticator passes all requests.
func authenticated(a *auth.Authenticator, errorWriter *connect.ErrorWriter, next http.Handler) http.Handler {
	if a == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		var principal *auth.Principal
		var err error
		switch uri := certificateURI(r); {
		case hasLogin(a, r):
			principal, err = authenticateLogin(ctx, a, r)
		case uri == "":
			principal, err = a.Authenticate(ctx, r.Header["Authorization"], r.RemoteAddr)
		default:
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, r.TLS.PeerCertificates[0].NotAfter) // connections may last longer
			defer cancel()
			principal, err = a.AuthenticateCertificate(ctx, uri, r.Header["Authorization"], r.RemoteAddr)
		}
		if err != nil {
			refuseUnauthenticated(w, r, errorWriter, err)
			return
		}
		noteActor(ctx, principal)
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, principalKey{}, principal)))
	})
}

// certificateURI returns the URI that identifies the client of a connection, or "". It is the only
// URI in the verified certificate of the client, such as a SPIFFE ID.
func certificateURI(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates[0].URIs) != 1 {
		return ""
	}
	if uri := r.TLS.PeerCertificates[0].URIs[0].String(); auth.IsCertificateURI(uri) {
		return uri
	}
	return ""
}

// identified is like authenticated, but also passes requests without a token and without a
// certificate that identifies the client.
func identified(a *auth.Authenticator, errorWriter *connect.ErrorWriter, next http.Handler) http.Handler {
	private := authenticated(a, errorWriter, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header["Authorization"]) == 0 && certificateURI(r) == "" {
			next.ServeHTTP(w, r)
			return
		}
		private.ServeHTTP(w, r)
	})
}

// refuseUnauthenticated answers a request that could not be authenticated. err may also report a
// limit, or that the database or the issuer is unavailable.
func refuseUnauthenticated(w http.ResponseWriter, r *http.Request, errorWriter *connect.ErrorWriter, err error) {
	code, status, reason := connect.CodeUnauthenticated, http.StatusUnauthorized,
		progressorv1.ErrorDetail_REASON_UNAUTHENTICATED
	switch {
	case errors.Is(err, auth.ErrLimited), errors.Is(err, auth.ErrBusy):
		code, status, reason = connect.CodeResourceExhausted, http.StatusTooManyRequests,
			progressorv1.ErrorDetail_REASON_OVERLOADED
	case errors.Is(err, process.ErrUnavailable):
		code, status, reason = connect.CodeUnavailable, http.StatusServiceUnavailable,
			progressorv1.ErrorDetail_REASON_UNAVAILABLE
		shown := process.ErrUnavailable // without the error of the database
		if errors.Is(err, auth.ErrIssuer) {
			shown = auth.ErrIssuer
		}
		err = shown
	default:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if r.Method == http.MethodPost && errorWriter.IsSupported(r) { // methods use POST, pages GET
		answer := connect.NewError(code, err)
		addDetail(answer, &progressorv1.ErrorDetail{Reason: reason})
		_ = errorWriter.Write(w, r, answer) // the client may have disconnected
		return
	}
	page(w, status, err.Error())
}

// whoami shows the principal of a request, followed by its grants and its groups, one per line.
func whoami(w http.ResponseWriter, r *http.Request) {
	text := "anonymous"
	if p := principalOf(r.Context()); p != nil {
		text = strings.Join(slices.Concat([]string{p.Name}, p.Grants(), p.Groups()), "\n")
	}
	page(w, http.StatusOK, text)
}

// identity contains the principal and the permissions of a request, for the console.
type identity struct {
	Principal string    `json:"principal"` // "" if the engine does not authenticate
	Login     bool      `json:"login"`     // the principal has logged in to the console
	Groups    []string  `json:"groups"`
	Grants    []allowed `json:"grants"`
}

// allowed is a set of permissions with the namespaces to which it applies.
type allowed struct {
	Namespaces  string   `json:"namespaces"` // a pattern
	Permissions []string `json:"permissions"`
}

// identityOf returns the identity of the principal of a request.
func identityOf(ctx context.Context) identity {
	p := principalOf(ctx)
	if p == nil {
		p = auth.NewPrincipal("", []auth.Grant{{Role: auth.RoleRoot, Namespaces: auth.Everywhere}})
	}
	who := identity{Principal: p.Name, Login: p.HasLogin(), Groups: append([]string{}, p.Groups()...)}
	for pattern, permissions := range p.Permissions() {
		names := make([]string, len(permissions))
		for n := range permissions {
			names[n] = auth.PermissionName(permissions[n])
		}
		who.Grants = append(who.Grants, allowed{pattern, names})
	}
	slices.SortFunc(who.Grants, func(a, b allowed) int { return strings.Compare(a.Namespaces, b.Namespaces) })
	return who
}

// everywhere passes only requests whose principal has a permission in all namespaces to next.
func everywhere(permission progressorv1.Permission, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !mayEverywhere(r.Context(), permission) {
			page(w, http.StatusForbidden, r.URL.Path+" needs the permission "+auth.PermissionName(permission)+
				" in all namespaces (roles with it: "+strings.Join(auth.RolesWith(permission), ", ")+")")
			return
		}
		next.ServeHTTP(w, r)
	})
}
