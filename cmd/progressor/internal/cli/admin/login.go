package admin

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/login"
)

type loginCmd struct {
	cli.ClientFlags
	Issuer    string   `placeholder:"URL" setting:"" help:"URL of the issuer, such as https://login.example.com."`
	ClientID  string   `placeholder:"NAME" setting:"" help:"Client ID of the command line at the issuer, which must allow the device flow without a client secret."`
	Scopes    []string `default:"openid,profile,offline_access" placeholder:"NAMES" help:"Scopes to request. Without offline_access, some issuers return no refresh token. Default: ${default}."`
	TokenType string   `default:"id" enum:"id,access" placeholder:"TYPE" help:"Token to send to the engine: id, or access. Default: ${default}."`
	AllowHTTP bool     `name:"allow-http" help:"Allow an --address without TLS on another machine. Anyone who can read the traffic can copy the token."`
	IssuerCA  string   `name:"issuer-ca-file" placeholder:"FILE" help:"CA certificates that verify the issuer, PEM. Default: the system's."`
}

func (loginCmd) Help() string {
	return `Login gets a token from an issuer that the engine accepts (docs/security.md). It prints the URL of a
page of the issuer and a code, and waits until you have entered the code there, on this or another
device. All commands for this --address then use the token, unless you pass another one. They renew
it with a refresh token. Both tokens are stored in --login-file, which only you can read. A copy of
the refresh token may work for months, so log out when you have finished. Login revokes the refresh
token of your last login for this --address. The address must use https, except on this machine.

    progressor login --issuer https://login.example.com --client-id progressor
    progressor whoami
    progressor logout`
}

func (c *loginCmd) Run(a *cli.App) error {
	issuer := login.Issuer{
		URL: c.Issuer, ClientID: c.ClientID, Scopes: c.Scopes, Access: c.TokenType == "access", CAFile: c.IssuerCA,
	}
	if issuer.CAFile != "" { // later commands also read it, from any directory
		path, err := filepath.Abs(issuer.CAFile)
		if err != nil {
			return err
		}
		issuer.CAFile = path
	}
	if err := issuer.Check(); err != nil {
		return cli.UsageError(err)
	}
	if !c.AllowHTTP && !login.Private(c.Engine()) {
		return cli.UsageError(fmt.Errorf("--address: must be an https URL, because commands send the token there, "+
			"such as https://engine.example.com (got %s); in a network that you trust, add --allow-http", c.Address))
	}
	ctx, cancel := a.Interruptible()
	defer cancel()
	code, err := issuer.Begin(ctx)
	if err != nil {
		return err
	}
	// Revoke the previous refresh token before the issuer creates a new one, because some issuers
	// revoke all refresh tokens of a user together.
	if last, ok, err := c.Logins().Remove(ctx, c.Engine()); err != nil {
		return err
	} else if ok {
		if err := revoke(ctx, a, last); err != nil {
			fmt.Fprintf(a.Stderr, "Your last login: %v.\n", err)
		}
	}
	fmt.Fprintf(a.Stderr, "Open %s and enter the code %q", code.URL, code.Text)
	if !code.Expires.IsZero() {
		fmt.Fprintf(a.Stderr, " within %s", time.Until(code.Expires).Round(time.Second))
	}
	fmt.Fprintln(a.Stderr, ".")
	if code.Complete != "" {
		fmt.Fprintf(a.Stderr, "Or open %q.\n", code.Complete)
	}
	l, err := issuer.Wait(ctx, code)
	if err == nil {
		err = c.Logins().Put(ctx, c.Engine(), l)
	}
	if err != nil {
		abandon(ctx, a, l)
		return err
	}
	whoami := whoamiCmd{ClientFlags: c.ClientFlags}
	whoami.Token, whoami.TokenFile = "", ""
	if err := whoami.Run(a); err != nil {
		return fmt.Errorf("the login is stored, but the engine does not accept it: %w", err)
	}
	return nil
}

type logoutCmd struct {
	cli.ClientFlags
}

func (logoutCmd) Help() string {
	return `Logout deletes the tokens that login has stored for --address. It asks the issuer to revoke the
refresh token, so that a copy of it no longer works, and prints a warning if the issuer does not
support that. A copy of the token for the engine works until it expires. Logout does not end your
session at the issuer.

    progressor logout`
}

func (c *logoutCmd) Run(a *cli.App) error {
	ctx, cancel := a.Interruptible()
	defer cancel()
	last, removed, err := c.Logins().Remove(ctx, c.Engine())
	if err != nil {
		return err
	}
	if !removed {
		return &cli.CodedError{Err: fmt.Errorf("there is no login for %s", c.Address), Code: cli.ExitNotFound}
	}
	if err := revoke(ctx, a, last); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "logged out of %s\n", c.Address)
	return err
}

// abandonTime limits the revocation after a failed login.
const abandonTime = 10 * time.Second

// abandon asks the issuer to revoke the refresh token of a login that is not stored, even if the
// user has interrupted the command.
func abandon(ctx context.Context, a *cli.App, l login.Login) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTime)
	defer cancel()
	if err := revoke(ctx, a, l); err != nil {
		fmt.Fprintf(a.Stderr, "The failed login: %v.\n", err)
	}
}

// revoke asks the issuer to revoke the refresh token of a deleted login.
func revoke(ctx context.Context, a *cli.App, l login.Login) error {
	supported, err := l.Revoke(ctx)
	if err != nil {
		// err is not wrapped, so that this message is shown even if the command was interrupted.
		return fmt.Errorf("the tokens are deleted, but a copy of the refresh token may still work: %s", err.Error())
	}
	if !supported {
		fmt.Fprintf(a.Stderr, "The issuer %s cannot revoke tokens (it has no revocation_endpoint): a copy of the "+
			"refresh token works until it expires there.\n", l.URL)
	}
	return nil
}
