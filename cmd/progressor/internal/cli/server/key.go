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

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Create a key with which clients authenticate, and print its token."`
	List   keyListCmd   `cmd:"" help:"List the keys."`
	Revoke keyRevokeCmd `cmd:"" help:"Revoke a key."`
}

// maxKeyName is the maximum size of the name of a key in bytes.
const maxKeyName = 256

// connected connects to the database of a command and calls f.
func (f databaseFlags) connected(a *cli.App, run func(context.Context, *pgx.Conn) error) error {
	if err := f.check(); err != nil {
		return err
	}
	ctx, cancel := a.Request()
	defer cancel()
	dsn, err := f.DB.current(ctx)
	if err != nil {
		return err
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return checkDSN(dsn)
	}
	cfg.RuntimeParams["search_path"] = "progressor"
	cfg.RuntimeParams["application_name"] = "progressor key"
	storage.RequireWritable(&cfg.Config)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // what it was opened for is done
	return run(ctx, conn)
}

type keyCreateCmd struct {
	databaseFlags
	cli.OutputFlag
	Name       string         `required:"" placeholder:"NAME" help:"What the key is for, such as billing-worker."`
	Role       []string       `required:"" placeholder:"ROLE,..." help:"What the key may do: viewer, support, client, worker, author, admin or root. worker:JOBS limits a worker to jobs: NAME, PREFIX* or *."`
	Namespaces []string       `placeholder:"PATTERN,..." help:"Where it may do that: NAME, PREFIX* or *, such as shop/*. Required, except for the role root."`
	Expires    *time.Duration `placeholder:"DURATION" help:"How long the key is valid, such as 2160h. Default: without limit."`
}

func (keyCreateCmd) Help() string {
	return `Create stores the hash of a new key in the database and prints the token once. Clients send it as
"Authorization: Bearer TOKEN", and the commands read it from --token-file or $PROGRESSOR_TOKEN. The key
may do what its role allows in its namespaces; grant add gives it more roles. The command needs a
database role that may write api_keys and grants. Keys with the same name count as one client, whose
workers share their IDs, so that a key can be replaced. The command warns about a name in use.

    progressor key create --name billing --role client --namespaces 'billing/*'
    progressor key create --name mail-worker --role worker --namespaces mail,news --expires 720h
    progressor key create --name resizer --role worker:resize,worker:thumb-* --namespaces shop
    progressor key create --name operator --role root`
}

// createdKey is a new key in the JSON output.
type createdKey struct {
	ID    string `json:"id"`
	Token string `json:"token"`
}

func (c *keyCreateCmd) Run(a *cli.App) error {
	switch {
	case c.Name == "" || len(c.Name) > maxKeyName:
		return cli.UsageError(fmt.Errorf("--name: must have 1 to %d bytes (got %d)", maxKeyName, len(c.Name)))
	case c.Expires != nil && *c.Expires < time.Second:
		return cli.UsageError(fmt.Errorf("--expires: must be at least 1s (got %s)", *c.Expires))
	}
	id, token := auth.NewToken()
	hash := auth.Hash(token)
	key := storage.NewKey{KeyID: id, Name: c.Name, Hash: hash[:]}
	if c.Expires != nil {
		key.TTL = *c.Expires
	}
	var err error
	if key.Grants, err = grantsOf(id, c.Role, c.Namespaces); err != nil {
		return cli.UsageError(err)
	}
	return c.connected(a, func(ctx context.Context, conn *pgx.Conn) error {
		keys, err := storage.ListKeys(ctx, conn)
		if err != nil {
			return err
		}
		if _, err := storage.CreateKey(ctx, conn, key); err != nil {
			return err
		}
		warnAboutName(a, c.Name, keys)
		if c.JSON() {
			return output.PrintJSON(a.Stdout, createdKey{id, token})
		}
		fmt.Fprintln(a.Stderr, "The token is shown only now:")
		_, err = fmt.Fprintln(a.Stdout, token)
		return err
	})
}

// warnAboutName prints a warning if valid keys have the name of a new one.
func warnAboutName(a *cli.App, name string, keys []storage.APIKey) {
	for i := range keys {
		if k := &keys[i]; k.Name == name && stateOf(k, time.Now()) == keyIsValid {
			fmt.Fprintf(a.Stderr, "Warning: the key %s has the same name. Both keys count as one client, which may "+
				"use the same worker IDs. Use different names for different clients.\n", k.KeyID)
			return
		}
	}
}

// grantsOf returns the grants of a key, from the values of --role and --namespaces.
func grantsOf(keyID string, roles, patterns []string) (grants []storage.GrantKey, err error) {
	for _, role := range roles {
		where := patterns
		if len(where) == 0 {
			where = []string{auth.Everywhere}
		}
		for _, pattern := range where {
			if err := (auth.Grant{Role: role, Namespaces: pattern}).Check(); err != nil {
				return nil, fmt.Errorf("--%w", err)
			}
			grants = append(grants, storage.GrantKey{
				Principal: auth.KeyPrincipal(keyID), Role: role, Namespaces: pattern,
			})
		}
		if len(patterns) == 0 && role != auth.RoleRoot {
			return nil, fmt.Errorf("--namespaces: is required for the role %s: NAME, PREFIX* or *, such as shop/*",
				role)
		}
	}
	return grants, nil
}

// keyIsValid is the state of a key with which clients can authenticate.
const keyIsValid = "valid"

type keyListCmd struct {
	databaseFlags
	cli.OutputFlag
}

func (keyListCmd) Help() string {
	return `List shows all keys, the newest first, without their tokens. Grant list shows what they may do.

    progressor key list --db.dsn postgres://progressor@db/progressor`
}

// listedKey is a key in the JSON output.
type listedKey struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	State       string     `json:"state"`
	CreatedBy   string     `json:"created_by"`
	CreatedTime time.Time  `json:"created_time"`
	ExpireTime  *time.Time `json:"expire_time,omitempty"`
	RevokedTime *time.Time `json:"revoked_time,omitempty"`
}

func (c *keyListCmd) Run(a *cli.App) error {
	return c.connected(a, func(ctx context.Context, conn *pgx.Conn) error {
		keys, err := storage.ListKeys(ctx, conn)
		if err != nil {
			return err
		}
		listed := make([]listedKey, 0, len(keys))
		for i := range keys {
			k := &keys[i]
			listed = append(listed, listedKey{k.KeyID, k.Name, stateOf(k, time.Now()), k.CreatedBy, k.CreatedTime,
				k.ExpireTime, k.RevokedTime})
		}
		if c.JSON() {
			return output.PrintJSON(a.Stdout, map[string]any{"keys": listed})
		}
		var rows []table.Row
		for _, k := range listed {
			expires := "never"
			if k.ExpireTime != nil {
				expires = k.ExpireTime.UTC().Format(time.RFC3339)
			}
			rows = append(rows, table.Row{k.ID, output.OneLine(k.Name), k.State, output.OneLine(k.CreatedBy),
				k.CreatedTime.UTC().Format(time.RFC3339), expires})
		}
		return output.PrintRows(a.Stdout, table.Row{"key", "name", "state", "created by", "created", "expires"}, rows)
	})
}

func stateOf(k *storage.APIKey, now time.Time) string {
	switch {
	case k.RevokedTime != nil:
		return "revoked"
	case k.ExpireTime != nil && !k.ExpireTime.After(now):
		return "expired"
	}
	return keyIsValid
}

type keyRevokeCmd struct {
	databaseFlags
	Key string `arg:"" name:"key" help:"ID of the key; key list shows it."`
}

func (keyRevokeCmd) Help() string {
	return `Revoke makes a key invalid. Every engine rejects it after 10 s at most. A revoked key cannot become
valid again.

    progressor key revoke k3v9q2m1x7ab --db.dsn postgres://progressor@db/progressor`
}

func (c *keyRevokeCmd) Run(a *cli.App) error {
	return c.connected(a, func(ctx context.Context, conn *pgx.Conn) error {
		key, err := storage.RevokeKey(ctx, conn, c.Key)
		if errors.Is(err, process.ErrKeyNotFound) {
			return noKey(c.Key)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.Stdout, "revoked %s (%s)\n", key.KeyID, output.OneLine(key.Name))
		return err
	})
}
