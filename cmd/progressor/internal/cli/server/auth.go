package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/storage"
)

// The modes of authentication.
const (
	authAuto     = "auto"     // none on loopback addresses without OIDC, otherwise required
	authRequired = "required" // every client needs a credential
	authLocal    = "local"    // like required, but the root key in a file is also accepted
	authNone     = "none"     // every client may do everything
)

type authFlags struct {
	Mode    string    `default:"auto" enum:"auto,required,local,none" placeholder:"MODE" setting:"" help:"Who may use the API: required (clients with a key, a certificate or a token), local (also the root key in --auth.key-file), none (everyone), or auto (none on loopback without --auth.oidc, and required otherwise). Default: ${default}."`
	KeyFile string    `placeholder:"FILE" setting:"" help:"File of the root key with --auth.mode local; it is created if it does not exist. Default: .progressor/token, or token in --data-dir of dev."`
	OIDC    oidcFlags `embed:"" prefix:"oidc."`

	Console consoleFlags `embed:"" prefix:"console."`
}

// defaultKeyFile is the file in which the commands look for the root key of an engine on this
// machine.
const defaultKeyFile = ".progressor/token"

// mode returns the effective mode of an engine that listens on an address.
func (f authFlags) mode(listen string) string {
	switch {
	case f.Mode != authAuto && f.Mode != "":
		return f.Mode
	case isLoopback(listen) && !f.OIDC.isSet():
		return authNone
	}
	return authRequired
}

// isLoopback reports whether only this machine can connect to an address.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

func (f authFlags) check() error {
	if f.KeyFile != "" && f.Mode != authLocal {
		return errors.New("--auth.key-file: is used only with --auth.mode local")
	}
	if f.Mode == authNone && f.OIDC.isSet() {
		return errors.New("--auth.oidc: is not used with --auth.mode none")
	}
	_, err := f.OIDC.configs()
	return err
}

// checkListen returns an error if an address is malformed.
func checkListen(flag, address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%s: listen address %q: %w (want host:port, as in 127.0.0.1:7070)", flag, address, err)
	}
	return nil
}

// authentication describes how a node authenticates its clients.
type authentication struct {
	mode    string
	keyFile string // file of the root key, with authLocal
	oidc    oidcFlags
	console consoleFlags
	base    string // URL of an engine that listens on the address of --listen
}

// authentication returns the authentication of an engine that listens on an address.
func (f authFlags) authentication(scheme, listen string) authentication {
	file := f.KeyFile
	if file == "" {
		file = defaultKeyFile
	}
	return authentication{mode: f.mode(listen), keyFile: file, oidc: f.OIDC, console: f.Console, base: scheme + "://" + listen}
}

// open returns the Authenticator, or nil if clients do not authenticate.
func (a authentication) open(
	store *storage.Store, listen string, registerer prometheus.Registerer, log *slog.Logger,
) (*auth.Authenticator, error) {
	root := ""
	switch a.mode {
	case authNone:
		auth.New(store, "", registerer) // the metrics are exported in every mode
		if !isLoopback(listen) {
			log.Warn("no authentication: everyone who can connect has full access", "listen", listen,
				"next", "use --auth.mode required and progressor key create")
		}
		return nil, nil
	case authLocal:
		var err error
		if root, err = auth.RootKey(a.keyFile); err != nil {
			return nil, fmt.Errorf("--auth.key-file: %w", err)
		}
	}
	issuers, err := a.oidc.open(log, registerer)
	if err != nil {
		return nil, err
	}
	clients := auth.New(store, root, registerer)
	if issuers != nil {
		clients.Accept(issuers, log)
	}
	if issuers == nil || len(issuers.Logins()) == 0 {
		return clients, nil
	}
	base, err := a.console.url(a.base, listen)
	if err != nil {
		return nil, err
	}
	console := auth.Console{URL: base, Lifetime: a.console.Lifetime, Idle: a.console.Idle}
	if err := clients.AcceptLogins(store, console, log); err != nil {
		return nil, err
	}
	return clients, nil
}

// notice returns the message of dev about authentication, or "".
func (a authentication) notice(dataDir string) string {
	switch a.mode {
	case authLocal:
		return fmt.Sprintf("The API requires a token. It is in %s; the console asks for it.\n\n", a.keyFile)
	case authRequired:
		return fmt.Sprintf("The API requires a token; the console asks for it. To get one:\n\n"+
			"  %s key create --name me --role root --db.dsn \"$(cat %s/dsn)\"\n\n", invocation(), dataDir)
	}
	return ""
}
