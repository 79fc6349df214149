package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/progressor-engine/progressor/engine/auth/oidc"
)

type oidcFlags struct {
	Issuer      string `placeholder:"URL" setting:"" help:"Issuer whose tokens authenticate users (OpenID Connect), such as https://login.example.com."`
	Audience    string `placeholder:"NAME" setting:"" help:"Audience that the tokens must have; required with --auth.oidc.issuer."`
	GroupsClaim string `default:"groups" placeholder:"NAME" setting:"" help:"Claim with the groups of a user. Default: ${default}."`
	NameClaim   string `default:"sub" placeholder:"NAME" setting:"" help:"Claim with the name of a user. The name must be unique at the issuer, and never be given to another user. Default: ${default}."`
	CAFile      string `name:"ca-file" placeholder:"FILE" setting:"" help:"CA certificates that verify the issuer, PEM. Default: the system's."`

	ClientID         string `name:"client-id" placeholder:"ID" setting:"" help:"Client with which users log in to the console at the issuer. Default: the console asks for a token."`
	ClientSecretFile string `placeholder:"FILE" setting:"" help:"File with the secret of the client. Default: a client without a secret."`
	Scopes           string `default:"openid" placeholder:"NAMES" setting:"" help:"Scopes of a login to the console, separated by spaces. Default: ${default}."`

	File string `placeholder:"FILE" setting:"" help:"File with several issuers, YAML, instead of the other flags of --auth.oidc (docs/security.md)."`
}

// isSet reports whether there are issuers.
func (f oidcFlags) isSet() bool { return f.Issuer != "" || f.File != "" }

// issuersFile is the content of a file with issuers.
type issuersFile struct {
	Issuers []issuerEntry `yaml:"issuers"`
}

type issuerEntry struct {
	Issuer      string `yaml:"issuer"`
	Audience    string `yaml:"audience"`
	GroupsClaim string `yaml:"groups_claim"`
	NameClaim   string `yaml:"name_claim"`
	GroupPrefix string `yaml:"group_prefix"`
	CAFile      string `yaml:"ca_file"`

	Name             string `yaml:"name"`
	ClientID         string `yaml:"client_id"`
	ClientSecretFile string `yaml:"client_secret_file"`
	Scopes           string `yaml:"scopes"`
}

// configs returns the issuers, or an error that names the flag.
func (f oidcFlags) configs() ([]oidc.Config, error) {
	one := oidc.Config{
		Issuer: f.Issuer, Audience: f.Audience, GroupsClaim: f.GroupsClaim, NameClaim: f.NameClaim, CAFile: f.CAFile,
		ClientID: f.ClientID, ClientSecretFile: f.ClientSecretFile, Scopes: f.Scopes,
	}
	others := f.Audience != "" || f.CAFile != "" || f.ClientID != "" || f.ClientSecretFile != ""
	switch {
	case f.File != "" && (f.Issuer != "" || others):
		return nil, errors.New("--auth.oidc.file: cannot be used with --auth.oidc.issuer, --auth.oidc.audience, " +
			"--auth.oidc.ca-file, --auth.oidc.client-id or --auth.oidc.client-secret-file: set them in the file")
	case f.File != "":
		return f.read()
	case f.Issuer == "" && others:
		return nil, errors.New("--auth.oidc.issuer: is required with --auth.oidc.audience, --auth.oidc.ca-file, " +
			"--auth.oidc.client-id and --auth.oidc.client-secret-file")
	case f.Issuer == "":
		return nil, nil
	}
	if f.Audience == "" {
		return nil, errors.New("--auth.oidc.audience: is required with --auth.oidc.issuer")
	}
	if err := oidc.Check(one); err != nil {
		key, reason, _ := strings.Cut(err.Error(), ":") // group_prefix and name are not set
		return nil, fmt.Errorf("--auth.oidc.%s:%s", strings.ReplaceAll(key, "_", "-"), reason)
	}
	return []oidc.Config{one}, nil
}

// read returns the issuers in the file.
func (f oidcFlags) read() ([]oidc.Config, error) {
	text, err := os.ReadFile(f.File)
	if err != nil {
		return nil, fmt.Errorf("--auth.oidc.file: %w", err)
	}
	var file issuersFile
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("--auth.oidc.file: %s: %w", f.File, err)
	}
	configs := make([]oidc.Config, len(file.Issuers))
	for n, e := range file.Issuers {
		configs[n] = oidc.Config(e)
		if e.GroupsClaim == "" {
			configs[n].GroupsClaim = "groups"
		}
		if e.NameClaim == "" {
			configs[n].NameClaim = "sub"
		}
		if e.Scopes == "" {
			configs[n].Scopes = "openid"
		}
	}
	if err := oidc.Check(configs...); err != nil {
		return nil, fmt.Errorf("--auth.oidc.file: %s: %w", f.File, err)
	}
	return configs, nil
}

// open returns the issuers, or nil if there are none.
func (f oidcFlags) open(log *slog.Logger, registerer prometheus.Registerer) (*oidc.Issuers, error) {
	configs, err := f.configs()
	if err != nil || len(configs) == 0 {
		return nil, err
	}
	return oidc.New(configs, log, registerer)
}
