package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

type grantCmd struct {
	Add    grantAddCmd    `cmd:"" help:"Give a role in some namespaces to a client."`
	List   grantListCmd   `cmd:"" help:"List what clients may do."`
	Remove grantRemoveCmd `cmd:"" help:"Take a role away from a client."`
}

// grantArgs identify a grant.
type grantArgs struct {
	Principal  string `arg:"" name:"principal" help:"The client: key:ID, cert: and the URI of its certificate, user:ISSUER#NAME, or group:NAME."`
	Role       string `arg:"" name:"role" complete:"viewer,support,client,worker,author,admin,root" help:"viewer, support, client, worker, author, admin or root. worker:JOBS limits a worker to jobs: NAME, PREFIX* or *."`
	Namespaces string `arg:"" name:"namespaces" help:"NAME, PREFIX* or *, such as shop/*."`
}

func (g *grantArgs) key() storage.GrantKey {
	return storage.GrantKey{Principal: g.Principal, Role: g.Role, Namespaces: g.Namespaces}
}

// keyOf returns the ID of the key in the name of a principal, or "" if the principal is not a key.
func keyOf(principal string) (string, error) {
	id, err := auth.KeyOf(principal)
	if err != nil {
		return "", cli.UsageError(fmt.Errorf("<principal>: %w", err))
	}
	return id, nil
}

type grantAddCmd struct {
	databaseFlags
	grantArgs
}

func (grantAddCmd) Help() string {
	return `Add gives a client a role in the namespaces that match a pattern. Every engine applies it after 10 s at
most. A client may do what at least one of its roles allows; docs/security.md describes the roles.

    progressor grant add key:k3v9q2m1x7ab viewer 'shop/*'
    progressor grant add cert:spiffe://example.org/mailer worker mail
    progressor grant add key:k3v9q2m1x7ab worker:resize shop
    progressor grant add group:support support 'shop/*'
    progressor grant add user:https://login.example.com#alice admin 'shop/*'`
}

func (c *grantAddCmd) Run(a *cli.App) error {
	id, err := keyOf(c.Principal)
	if err != nil {
		return err
	}
	if err := (auth.Grant{Role: c.Role, Namespaces: c.Namespaces}).Check(); err != nil {
		return cli.UsageError(err)
	}
	return c.withConnection(a, func(ctx context.Context, conn *pgx.Conn) error {
		added, err := storage.AccessOf(conn).AddGrant(ctx, id, c.key(), process.Actor{})
		switch {
		case errors.Is(err, process.ErrKeyNotFound):
			return noKey(id)
		case err != nil:
			return err
		}
		word := "already has"
		if added {
			word = "now has"
		}
		_, err = fmt.Fprintf(a.Stdout, "%s %s the role %s in %s\n", c.Principal, word, c.Role, c.Namespaces)
		return err
	})
}

// noKey is the error for a key that does not exist or was revoked.
func noKey(id string) error {
	return &cli.CodedError{Err: fmt.Errorf("there is no valid key %.40q", id), Code: cli.ExitNotFound,
		Next: "progressor key list"}
}

type grantListCmd struct {
	databaseFlags
	cli.OutputFlag
	Principal string `arg:"" optional:"" name:"principal" help:"Only of this client: key:ID, cert:URI, user:ISSUER#NAME or group:NAME."`
}

func (grantListCmd) Help() string {
	return `List shows the roles of all clients, or of one, and the namespaces in which they have them.

    progressor grant list
    progressor grant list key:k3v9q2m1x7ab`
}

// listedGrant is a grant in the JSON output.
type listedGrant struct {
	Principal   string    `json:"principal"`
	Role        string    `json:"role"`
	Namespaces  string    `json:"namespaces"`
	CreatedBy   string    `json:"created_by"`
	CreatedTime time.Time `json:"created_time"`
}

func (c *grantListCmd) Run(a *cli.App) error {
	if c.Principal != "" {
		if _, err := keyOf(c.Principal); err != nil {
			return err
		}
	}
	return c.withConnection(a, func(ctx context.Context, conn *pgx.Conn) error {
		grants, err := storage.AccessOf(conn).ListGrants(ctx,
			storage.GrantQuery{Principal: c.Principal, Limit: maxListed})
		if err != nil {
			return err
		}
		listed, rows := make([]listedGrant, len(grants)), make([]table.Row, len(grants))
		for n := range grants {
			g := &grants[n]
			listed[n] = listedGrant{g.Principal, g.Role, g.Namespaces, g.CreatedBy, g.CreatedTime}
			rows[n] = table.Row{g.Principal, g.Role, g.Namespaces, output.OneLine(g.CreatedBy),
				output.Second(g.CreatedTime)}
		}
		if c.JSON() {
			return output.PrintJSON(a.Stdout, map[string]any{"grants": listed})
		}
		none := cli.None("grants", "", c.Principal != "", "add one with progressor grant add PRINCIPAL ROLE NAMESPACES")
		return output.PrintList(a.Stdout, none,
			table.Row{"principal", "role", "namespaces", output.Minor("created by"), output.Minor("created")}, rows)
	})
}

type grantRemoveCmd struct {
	databaseFlags
	grantArgs
}

func (grantRemoveCmd) Help() string {
	return `Remove takes a role away from a client. Every engine applies this after 10 s at most, and streams of the
client that need the role end. A client without roles may do nothing.

    progressor grant remove key:k3v9q2m1x7ab viewer 'shop/*'`
}

func (c *grantRemoveCmd) Run(a *cli.App) error {
	if _, err := keyOf(c.Principal); err != nil {
		return err
	}
	return c.withConnection(a, func(ctx context.Context, conn *pgx.Conn) error {
		err := storage.AccessOf(conn).RemoveGrant(ctx, c.key(), process.Actor{})
		switch {
		case errors.Is(err, process.ErrGrantNotFound):
			return &cli.CodedError{
				Err:  fmt.Errorf("%.80s does not have the role %.40q in %.200q", c.Principal, c.Role, c.Namespaces),
				Code: cli.ExitNotFound, Next: "progressor grant list " + c.Principal,
			}
		case err != nil:
			return err
		}
		_, err = fmt.Fprintf(a.Stdout, "%s no longer has the role %s in %s\n", c.Principal, c.Role, c.Namespaces)
		return err
	})
}
