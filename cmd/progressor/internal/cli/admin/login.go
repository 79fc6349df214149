package admin

import (
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/login"
)

type loginCmd struct {
	cli.ClientFlags
	Issuer    string   `placeholder:"URL" setting:"" help:"Issuer at which you log in, such as https://login.example.com."`
	ClientID  string   `placeholder:"NAME" setting:"" help:"Client of the issuer for the command line, without a secret and with the device flow."`
	Scopes    []string `default:"openid,profile,offline_access" placeholder:"NAMES" help:"What the tokens are for. Default: ${default}."`
	TokenType string   `default:"id" enum:"id,access" placeholder:"TYPE" help:"Token that is sent to the engine: id, or access. Default: ${default}."`
	IssuerCA  string   `name:"issuer-ca-file" placeholder:"FILE" help:"Authorities of the certificate of the issuer, PEM. Default: those of the system."`
}

func (loginCmd) Help() string {
	return `Login gets a token of an issuer that the engine accepts (docs/security.md). It prints the address of a page
of the issuer and a code, and waits until you have entered it, on this or another device. All commands
for this --address then use the token, and refresh it, unless they have another one. The tokens are in
the file --login-file, which only you can read.

    progressor login --issuer https://login.example.com --client-id progressor
    progressor whoami
    progressor logout`
}

func (c *loginCmd) Run(a *cli.App) error {
	issuer := login.Issuer{
		URL: c.Issuer, ClientID: c.ClientID, Scopes: c.Scopes, Access: c.TokenType == "access", CAFile: c.IssuerCA,
	}
	if err := issuer.Check(); err != nil {
		return cli.UsageError(err)
	}
	ctx, cancel := a.Interruptible()
	defer cancel()
	code, err := issuer.Begin(ctx)
	if err != nil {
		return err
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
	if err != nil {
		return err
	}
	if err := c.Logins().Put(c.Engine(), l); err != nil {
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
	return `Logout deletes the tokens that login has stored for --address. It does not end your session at the issuer,
and a copy of the token works until it expires.

    progressor logout`
}

func (c *logoutCmd) Run(a *cli.App) error {
	removed, err := c.Logins().Remove(c.Engine())
	if err != nil {
		return err
	}
	if !removed {
		return &cli.CodedError{Err: fmt.Errorf("there is no login for %s", c.Address), Code: cli.ExitNotFound}
	}
	_, err = fmt.Fprintf(a.Stdout, "logged out of %s\n", c.Address)
	return err
}
