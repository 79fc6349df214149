package oidc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/progressor-engine/progressor/processor/remote"
)

const (
	// MaxIssuers limits the number of issuers.
	MaxIssuers = 16
	// maxIssuer is the maximum size of the URL of an issuer in bytes. With maxName, it keeps the
	// names of users below the limit of the table grants.
	maxIssuer = 240
	// maxAudience is the maximum size of an audience in bytes.
	maxAudience = 500
	// maxPrefix is the maximum size of a group prefix in bytes.
	maxPrefix = 64
	// maxSecret is the maximum size of a client secret in bytes.
	maxSecret = 1000
)

// nameRule matches the name of an issuer, which is a part of a URL.
var nameRule = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// Config describes an issuer and which of its tokens are accepted.
type Config struct {
	Issuer      string // URL in the claim iss
	Audience    string // must be in the claim aud
	GroupsClaim string // claim with the groups of a user, such as groups
	NameClaim   string // claim with the name of a user, such as sub
	GroupPrefix string // added to the groups, so that those of different issuers differ
	CAFile      string // authorities that verify the certificate of the issuer, in PEM; "" for those of the system

	Name             string // distinguishes issuers with logins to the console; may be "" for a single one
	ClientID         string // client for logins to the console; "" if the issuer has none
	ClientSecretFile string // file with the secret of the client; "" for a client without a secret
	Scopes           string // scopes of a login, separated by spaces
}

// check returns an error that begins with the key of the first invalid setting.
func (c Config) check() error {
	if c.Issuer == "" {
		return errors.New("issuer: is required")
	}
	if err := checkURL(c.Issuer); err != nil {
		return fmt.Errorf("issuer: %w", err)
	}
	for _, s := range []struct {
		key, value string
		size       int
	}{{"audience", c.Audience, maxAudience}, {"groups_claim", c.GroupsClaim, maxAudience},
		{"name_claim", c.NameClaim, maxAudience}} {
		if s.value == "" || len(s.value) > s.size || !printable(s.value) {
			return fmt.Errorf("%s: must have 1 to %d printable characters (got %.80q)", s.key, s.size, s.value)
		}
	}
	if len(c.GroupPrefix) > maxPrefix || !printable(c.GroupPrefix) {
		return fmt.Errorf("group_prefix: must have at most %d printable characters (got %.80q)", maxPrefix,
			c.GroupPrefix)
	}
	if _, err := c.authorities(); err != nil {
		return fmt.Errorf("ca_file: %w", err)
	}
	return c.checkClient()
}

// checkClient returns an error for an invalid setting of logins to the console.
func (c Config) checkClient() error {
	switch {
	case c.Name != "" && !nameRule.MatchString(c.Name):
		return fmt.Errorf("name: must have 1 to 32 characters of a-z, 0-9 and - (got %.80q)", c.Name)
	case c.ClientID == "" && c.ClientSecretFile != "":
		return errors.New("client_id: is required with client_secret_file")
	case c.ClientID == "":
		return nil
	case len(c.ClientID) > maxAudience || !graphic(c.ClientID):
		return fmt.Errorf("client_id: must have at most %d printable ASCII characters without spaces (got %.80q)",
			maxAudience, c.ClientID)
	case !slices.Contains(strings.Fields(c.Scopes), oidc.ScopeOpenID) || len(c.Scopes) > maxAudience ||
		strings.ContainsFunc(c.Scopes, func(r rune) bool { return r < ' ' || r > '~' }):
		return fmt.Errorf("scopes: must have at most %d printable ASCII characters, and contain openid (got %.80q)",
			maxAudience, c.Scopes)
	}
	if _, err := c.clientSecret(); err != nil {
		return fmt.Errorf("client_secret_file: %w", err)
	}
	return nil
}

// clientSecret returns the secret of the client, or "" if it has none.
func (c Config) clientSecret() (string, error) {
	if c.ClientSecretFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(c.ClientSecretFile)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" || len(secret) > maxSecret || !printable(secret) {
		return "", fmt.Errorf("%s must contain one line of 1 to %d printable characters", c.ClientSecretFile, maxSecret)
	}
	return secret, nil
}

// checkURL returns an error if a URL cannot be the URL of an issuer.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || strings.ContainsAny(text, "?#") || !graphic(text) ||
		len(text) > maxIssuer || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return fmt.Errorf("must be the https URL of an issuer, such as https://login.example.com, without user, query "+
			"and fragment, of at most %d bytes; http is allowed on loopback (got %.260q)", maxIssuer, text)
	}
	return nil
}

// isLoopback reports whether host is localhost or a loopback address.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Check returns an error if a setting of an issuer is invalid, or if several issuers cannot be
// distinguished.
func Check(configs ...Config) error {
	if len(configs) == 0 || len(configs) > MaxIssuers {
		return fmt.Errorf("issuers: must have 1 to %d elements (got %d)", MaxIssuers, len(configs))
	}
	for n, c := range configs {
		if err := c.check(); err != nil {
			if len(configs) > 1 {
				return fmt.Errorf("issuers[%d].%w", n, err)
			}
			return err
		}
		for m, other := range configs {
			switch {
			case n == m:
			case c.Issuer == other.Issuer:
				return fmt.Errorf("issuers[%d].issuer: %s is listed twice", n, c.Issuer)
			case strings.HasPrefix(c.GroupPrefix, other.GroupPrefix):
				return fmt.Errorf("issuers[%d].group_prefix: with several issuers, each must have its own, and none "+
					"may begin with another, so that a group belongs to one issuer (got %q and %q)", n, c.GroupPrefix,
					other.GroupPrefix)
			case c.ClientID != "" && other.ClientID != "" && (c.Name == "" || c.Name == other.Name):
				return fmt.Errorf("issuers[%d].name: with several issuers that have a client_id, each must have its "+
					"own, so that their answers go to different pages (got %q and %q)", n, c.Name, other.Name)
			}
		}
	}
	return nil
}

// authorities returns the authorities in CAFile, or nil for those of the system.
func (c Config) authorities() (*x509.CertPool, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s must contain certificates in PEM (-----BEGIN CERTIFICATE-----)", c.CAFile)
	}
	return pool, nil
}

// client returns the HTTP client for an issuer. It connects only to addresses that a processor may
// have, and follows no redirects.
func (c Config) client() (*http.Client, error) {
	pool, err := c.authorities()
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: readTimeout, ControlContext: remote.Control}
	return &http.Client{
		Transport: limitedBodies{&http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
			TLSHandshakeTimeout: readTimeout, IdleConnTimeout: time.Minute, MaxIdleConns: 1, ForceAttemptHTTP2: true,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
	}, nil
}

var errRedirect = errors.New("the issuer redirects, which is not supported")

// maxBody is the maximum size of an issuer's response in bytes.
const maxBody = 1 << 20

// limitedBodies fails responses with large bodies.
type limitedBodies struct{ next http.RoundTripper }

func (l limitedBodies) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxBody)
	}
	return response, err
}
