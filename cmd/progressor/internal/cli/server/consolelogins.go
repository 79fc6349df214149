package server

import (
	"context"
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

type consoleLoginCmd struct {
	List consoleLoginListCmd `cmd:"" help:"List the logins of users to the web console."`
	End  consoleLoginEndCmd  `cmd:"" help:"End the logins of a user to the web console."`
}

// checkUser returns an error if a name is not that of a user.
func checkUser(name string) error {
	if !auth.IsUser(name) {
		return cli.UsageError(fmt.Errorf("USER: must be user:ISSUER#NAME, such as user:https://login.example.com#alice "+
			"(got %.300q)", name))
	}
	return nil
}

type consoleLoginListCmd struct {
	databaseFlags
	cli.OutputFlag
	User string `arg:"" optional:"" help:"User, as user:ISSUER#NAME. Default: all."`
}

func (consoleLoginListCmd) Help() string {
	return `List shows the logins that have not expired, newest first. Logins that were not used for
auth.console.idle have also expired.

    progressor console-login list --db.dsn postgres://progressor@db/progressor`
}

// listedLogin is a login in the JSON output.
type listedLogin struct {
	ID          string    `json:"id"`
	User        string    `json:"user"`
	CreatedTime time.Time `json:"created_time"`
	UsedTime    time.Time `json:"used_time"`
	ExpireTime  time.Time `json:"expire_time"`
}

func (c *consoleLoginListCmd) Run(a *cli.App) error {
	if c.User != "" {
		if err := checkUser(c.User); err != nil {
			return err
		}
	}
	return c.withConnection(a, func(ctx context.Context, conn *pgx.Conn) error {
		logins, err := storage.AccessOf(conn).ListLogins(ctx,
			storage.LoginQuery{Principal: c.User, Limit: maxListed})
		if err != nil {
			return err
		}
		listed := make([]listedLogin, 0, len(logins))
		for i := range logins {
			l := &logins[i]
			listed = append(listed, listedLogin{l.LoginID, l.Principal, l.CreatedTime, l.UsedTime, l.ExpireTime})
		}
		if c.JSON() {
			return output.PrintJSON(a.Stdout, map[string]any{"logins": listed})
		}
		var rows []table.Row
		for _, l := range listed {
			rows = append(rows, table.Row{l.ID, output.OneLine(l.User), output.Second(l.CreatedTime),
				output.Second(l.UsedTime), output.Second(l.ExpireTime)})
		}
		return output.PrintList(a.Stdout, cli.None("logins", "", c.User != "", ""),
			table.Row{"login", "user", "created", "used", "expires"}, rows)
	})
}

type consoleLoginEndCmd struct {
	databaseFlags
	User string `arg:"" help:"User, as user:ISSUER#NAME; console-login list shows it."`
}

func (consoleLoginEndCmd) Help() string {
	return `End ends all logins of a user. Every engine rejects them within 10 s. The user can log in
again, unless the issuer prevents it.

    progressor console-login end 'user:https://login.example.com#alice'`
}

func (c *consoleLoginEndCmd) Run(a *cli.App) error {
	if err := checkUser(c.User); err != nil {
		return err
	}
	return c.withConnection(a, func(ctx context.Context, conn *pgx.Conn) error {
		ended, err := storage.AccessOf(conn).EndLogins(ctx, c.User, process.Actor{})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.Stdout, "ended %s of %s\n", output.Counted(ended, "login"), output.OneLine(c.User))
		return err
	})
}
