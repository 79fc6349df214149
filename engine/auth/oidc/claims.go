package oidc

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
)

const (
	// MaxGroups is the maximum number of groups in a token.
	MaxGroups = 200
	// maxName is the maximum size of a user name in bytes.
	maxName = 255
	// maxGroup is the maximum size of a group with its prefix in bytes.
	maxGroup = 256
)

// Identity contains the user and the groups that a token names.
type Identity struct {
	User    string    // ISSUER#NAME
	Groups  []string  // sorted, with the prefix of the issuer
	Expires time.Time // when the token expires
}

// identify returns the identity in the claims of a verified token.
func (c Config) identify(token *oidc.IDToken) (Identity, error) {
	var claims map[string]json.RawMessage
	if err := token.Claims(&claims); err != nil {
		return Identity{}, &ClaimError{"the claims must be a JSON object"}
	}
	var name string
	if json.Unmarshal(claims[c.NameClaim], &name) != nil || name == "" || len(name) > maxName || !graphic(name) {
		return Identity{}, claimError(c.NameClaim, "must have 1 to %d printable ASCII characters without spaces",
			maxName)
	}
	if verified, ok := claims["email_verified"]; ok && c.NameClaim == "email" &&
		strings.Trim(string(verified), `"`) != "true" {
		return Identity{}, claimError("email_verified", "must be true")
	}
	groups, err := c.groups(claims[c.GroupsClaim])
	return Identity{User: c.Issuer + "#" + name, Groups: groups, Expires: token.Expiry}, err
}

// groups returns the groups in a claim, which contains a list of names, one name, or nothing. It
// skips groups that cannot have grants.
func (c Config) groups(raw json.RawMessage) (groups []string, err error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if json.Unmarshal(raw, &groups) != nil {
		groups = make([]string, 1)
		if json.Unmarshal(raw, &groups[0]) != nil {
			return nil, claimError(c.GroupsClaim, "must be a list of strings")
		}
	}
	if len(groups) > MaxGroups {
		return nil, claimError(c.GroupsClaim, "has %d groups, but at most %d are allowed: configure the "+
			"issuer to send only the relevant groups", len(groups), MaxGroups)
	}
	var named []string
	for _, group := range groups {
		if group != "" && ValidGroup(c.GroupPrefix+group) {
			named = append(named, c.GroupPrefix+group)
		}
	}
	slices.Sort(named)
	return slices.Compact(named), nil
}

func claimError(claim, format string, values ...any) error {
	return &ClaimError{fmt.Sprintf("claim %.100q: ", claim) + fmt.Sprintf(format, values...)}
}

// ValidGroup reports whether a group can have grants.
func ValidGroup(name string) bool { return name != "" && len(name) <= maxGroup && printable(name) }

// ValidUser reports whether user has the form ISSUER#NAME, with a valid issuer and name.
func ValidUser(user string) bool {
	issuer, name, ok := strings.Cut(user, "#")
	return ok && checkURL(issuer) == nil && name != "" && len(name) <= maxName && graphic(name)
}

// printable reports whether a text is valid UTF-8 and has only printable characters and the ASCII
// space.
func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// graphic reports whether a text has only printable ASCII characters and no spaces.
func graphic(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}
