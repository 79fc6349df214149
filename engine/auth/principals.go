package auth

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/progressor-engine/progressor/engine/auth/oidc"
)

// The name of a principal is key:ID for a key, cert:URI for a client certificate, user:ISSUER#NAME
// for a user, or group:NAME for a group of users.
const (
	keyPrefix         = "key:"
	certificatePrefix = "cert:"
	userPrefix        = "user:"
	groupPrefix       = "group:"
	// cachedLogin is the prefix of logins in the cache of keys. A login is not a principal.
	cachedLogin = "login:"
)

// namedKeyPrefix begins the owner of worker IDs for keys that have a name. Names of principals do
// not begin with it.
const namedKeyPrefix = "keys:"

// KeyPrincipal returns the principal name of a key.
func KeyPrincipal(keyID string) string { return keyPrefix + keyID }

// maxURI is the maximum size of a URI that identifies a client in bytes.
const maxURI = 500

var uriRule = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:[[:graph:]]+$`)

// IsCertificateURI reports whether a URI can identify a client.
func IsCertificateURI(uri string) bool { return len(uri) <= maxURI && uriRule.MatchString(uri) }

// KeyOf returns the ID of the key in the name of a principal, or "" if the principal is not a key.
// It returns an error without a field if no principal can have this name.
func KeyOf(principal string) (keyID string, err error) {
	id, isKey := strings.CutPrefix(principal, keyPrefix)
	if isKey && id != "" {
		return id, nil
	}
	if IsPrincipal(principal) {
		return "", nil
	}
	return "", fmt.Errorf("must be key:ID, such as key:k3v9q2m1x7ab, cert:URI, such as "+
		"cert:spiffe://example.org/billing, user:ISSUER#NAME, such as user:https://login.example.com#alice, or "+
		"group:NAME, such as group:support (got %.80q)", principal)
}

// IsUser reports whether a principal is a user.
func IsUser(principal string) bool {
	return strings.HasPrefix(principal, userPrefix) && IsPrincipal(principal)
}

// IsPrincipal reports whether a principal without a key can have grants: cert:URI,
// user:ISSUER#NAME, or group:NAME.
func IsPrincipal(name string) bool {
	for prefix, valid := range map[string]func(string) bool{
		certificatePrefix: IsCertificateURI, userPrefix: oidc.ValidUser, groupPrefix: oidc.ValidGroup,
	} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return valid(rest)
		}
	}
	return false
}
