package oidc

import (
	"strings"
	"testing"
)

// Check rejects a configuration that cannot work, and its error names the field.
func TestConfigurationIsChecked(t *testing.T) {
	t.Parallel()
	valid := Config{
		Issuer: "https://login.example.com/realms/a", Audience: "progressor", GroupsClaim: "groups", NameClaim: "sub",
	}
	with := func(change func(*Config)) Config { c := valid; change(&c); return c }
	issuer := func(url string) Config { return with(func(c *Config) { c.Issuer = url }) }
	prefix := func(url, prefix string) Config {
		return with(func(c *Config) { c.Issuer, c.GroupPrefix = url, prefix })
	}
	for _, url := range []string{"https://a", "http://127.0.0.1:8", "http://localhost:8/x", "http://[::1]:8"} {
		if err := Check(issuer(url)); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	if err := Check(prefix("https://a", "a:"), prefix("https://b", "b:")); err != nil {
		t.Error(err)
	}
	bad := []struct {
		configs []Config
		want    string
	}{
		{nil, "issuers: must have 1 to 16 elements"},
		{make([]Config, MaxIssuers+1), "issuers: must have 1 to 16 elements"},
		{[]Config{issuer("")}, "issuer: is required"},
		{[]Config{with(func(c *Config) { c.Audience = "" })}, "audience: must have 1 to 500"},
		{[]Config{with(func(c *Config) { c.GroupsClaim = "" })}, "groups_claim: must have"},
		{[]Config{with(func(c *Config) { c.NameClaim = "a\n" })}, "name_claim: must have"},
		{[]Config{with(func(c *Config) { c.GroupPrefix = strings.Repeat("a", 65) })}, "group_prefix: must have"},
		{[]Config{with(func(c *Config) { c.CAFile = "/none" })}, "ca_file: open /none"},
		{[]Config{with(func(c *Config) { c.CAFile = "config_test.go" })}, "ca_file: config_test.go must contain"},
		{[]Config{valid, valid}, "issuers[0].issuer: https://login.example.com/realms/a is listed twice"},
		{[]Config{issuer("https://a"), issuer("https://b")}, "issuers[0].group_prefix: with several issuers"},
		{[]Config{prefix("https://a", "a:"), prefix("https://b", "")}, "issuers[0].group_prefix"},
		{[]Config{prefix("https://a", "a"), prefix("https://b", "ab")}, "issuers[1].group_prefix"},
		{[]Config{prefix("https://a", "a"), prefix("ftp://b", "b")}, "issuers[1].issuer: must be the https URL"},
	}
	client := func(change func(*Config)) Config {
		return with(func(c *Config) { c.ClientID, c.Scopes = "console", "openid"; change(c) })
	}
	named := func(url, prefix, name string) Config {
		return client(func(c *Config) { c.Issuer, c.GroupPrefix, c.Name = url, prefix, name })
	}
	bad = append(bad, []struct {
		configs []Config
		want    string
	}{
		{[]Config{with(func(c *Config) { c.ClientSecretFile = "config_test.go" })}, "client_id: is required"},
		{[]Config{client(func(c *Config) { c.ClientID = "a b" })}, "client_id: must have at most 500"},
		{[]Config{client(func(c *Config) { c.Scopes = "profile" })}, "scopes: must have"},
		{[]Config{client(func(c *Config) { c.Scopes = "openid\ngroups" })}, "scopes: must have"},
		{[]Config{client(func(c *Config) { c.ClientSecretFile = "/none" })}, "client_secret_file: open /none"},
		{[]Config{client(func(c *Config) { c.ClientSecretFile = "config_test.go" })}, "client_secret_file: config"},
		{[]Config{client(func(c *Config) { c.Name = "a/b" })}, "name: must have 1 to 32"},
		{[]Config{named("https://a", "a:", "a"), named("https://b", "b:", "")}, "issuers[1].name: with several"},
		{[]Config{named("https://a", "a:", "a"), named("https://b", "b:", "a")}, "issuers[0].name: with several"},
	}...)
	third := prefix("https://c", "c:")
	if err := Check(named("https://a", "a:", "a"), named("https://b", "b:", "b"), third); err != nil {
		t.Error(err)
	}
	for _, url := range []string{
		"a", "http://login.example.com", "http://10.0.0.1", "https://", "https://a?b", "https://a#b", "https://u@a",
		"https://a/ b", "https://" + strings.Repeat("a", maxIssuer), "http://localhost.example.com",
	} {
		bad = append(bad, struct {
			configs []Config
			want    string
		}{[]Config{issuer(url)}, "issuer: must be the https URL"})
	}
	for _, c := range bad {
		if err := Check(c.configs...); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.configs, err, c.want)
		}
	}
}
