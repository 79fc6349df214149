package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/engine/auth/oidc"
	"github.com/progressor-engine/progressor/engine/rpc"
)

type consoleFlags struct {
	URL      string        `name:"url" placeholder:"URL" setting:"" help:"URL by which browsers reach the console, for logins. Default: the address of --listen, if a browser can use it."`
	Lifetime time.Duration `default:"12h" placeholder:"DURATION" setting:"" help:"How long a login to the console is valid, 5m to 720h. Default: ${default}."`
	Idle     time.Duration `default:"1h" placeholder:"DURATION" setting:"" help:"How long an unused login to the console stays valid, at least 5m. Default: ${default}."`
}

// minLogin and maxLogin limit the lifetime of a login to the console.
const (
	minLogin = 5 * time.Minute
	maxLogin = 720 * time.Hour
)

// checkConsole returns an error if users could not log in to the console of an engine that listens
// on the given address.
func (f authFlags) checkConsole(scheme, listen, console string) error {
	switch {
	case f.Console.Lifetime < minLogin || f.Console.Lifetime > maxLogin:
		return fmt.Errorf("--auth.console.lifetime: must be %s to %s (got %s)", minLogin, maxLogin, f.Console.Lifetime)
	case f.Console.Idle < minLogin:
		return fmt.Errorf("--auth.console.idle: must be at least %s (got %s)", minLogin, f.Console.Idle)
	}
	issuers, err := f.OIDC.configs()
	if err != nil {
		return err
	}
	logins := slices.ContainsFunc(issuers, func(c oidc.Config) bool { return c.ClientID != "" })
	switch {
	case !logins && f.Console.URL != "":
		return errors.New("--auth.console.url: is used only with --auth.oidc.client-id, or a client_id in the file " +
			"of --auth.oidc.file")
	case !logins:
		return nil
	case console == string(rpc.ConsoleOff):
		return errors.New("--auth.oidc.client-id: is not used with --console off")
	}
	_, err = f.Console.url(scheme+"://"+listen, listen)
	return err
}

// warning returns a warning if the URL of the console is valid but unsafe, or "".
func (f consoleFlags) warning() string {
	u, err := url.Parse(f.URL)
	if err != nil || strings.Trim(u.Path, "/") == "" {
		return ""
	}
	return fmt.Sprintf("--auth.console.url: has the path %s, so other pages of %s have the same origin and can use "+
		"the login of a user: give the engine a host name of its own", u.Path, u.Host)
}

// url returns the URL of the console, without a final slash. base is the URL that belongs to
// --listen. address is the address of the listener, with the actual port.
func (f consoleFlags) url(base, address string) (string, error) {
	text := f.URL
	if text == "" {
		u, err := url.Parse(base)
		if err != nil {
			return "", fmt.Errorf("--listen: %w", err)
		}
		if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() == "" || err == nil && ip.IsUnspecified() {
			return "", errors.New("--auth.console.url: is required for logins to the console, because --listen names " +
				"no address that browsers can use, such as https://progressor.example.com")
		}
		_, port, _ := net.SplitHostPort(address)
		text = u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port)
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || strings.ContainsAny(text, "?#") ||
		u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(net.JoinHostPort(u.Hostname(), "0"))) {
		return "", fmt.Errorf("--auth.console.url: must be the https URL of the console, such as "+
			"https://progressor.example.com, without user, query and fragment; http is allowed on this machine only, "+
			"because browsers store the cookie of a login only if it is protected by TLS (got %.200q)", text)
	}
	return strings.TrimSuffix(text, "/"), nil
}
