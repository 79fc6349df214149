package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	Create keyCreateCmd `cmd:"" help:"Create a key for a client, and print its token."`
	List   keyListCmd   `cmd:"" help:"List the keys."`
	Rotate keyRotateCmd `cmd:"" help:"Replace a key with a new one, and print its token."`
	Revoke keyRevokeCmd `cmd:"" help:"Revoke a key."`
}

// maxKeyName is the maximum size of a key name in bytes.
const maxKeyName = 256

// withConnection connects to the database of a command and calls run.
func (f databaseFlags) withConnection(a *cli.App, run func(context.Context, *pgx.Conn) error) error {
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
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is left to do on the connection
	return run(ctx, conn)
}

type keyCreateCmd struct {
	databaseFlags
	cli.OutputFlag
	Name       string         `required:"" placeholder:"NAME" help:"What the key is for, such as billing-worker."`
	Role       []string       `required:"" placeholder:"ROLE" complete:"viewer,support,client,worker,author,admin,root" help:"What the key may do: viewer, support, client, worker, author, admin or root. worker:JOBS limits a worker to jobs: NAME, PREFIX* or *."`
	Namespaces []string       `placeholder:"PATTERN" help:"Where it may do that: NAME, PREFIX* or *, such as shop/*. Required, except for the role root."`
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
	if err := checkKeyName(c.Name); err != nil {
		return err
	}
	ttl, err := ttlOf(c.Expires)
	if err != nil {
		return err
	}
	id, token := auth.NewToken()
	hash := auth.Hash(token)
	key := storage.NewKey{KeyID: id, Name: c.Name, Hash: hash[:], TTL: ttl}
	if key.Grants, err = grantsOf(id, c.Role, c.Namespaces); err != nil {
		return cli.UsageError(err)
	}
	return c.withConnection(a, func(ctx context.Context, conn *pgx.Conn) error {
		same, err := storage.AccessOf(conn).ListKeys(ctx, storage.KeyQuery{Name: c.Name, ValidOnly: true, Limit: 1})
		if err != nil {
			return err
		}
		if err := storage.AccessOf(conn).CreateKey(ctx, key, process.Actor{}); err != nil {
			return err
		}
		if len(same) > 0 {
			fmt.Fprintf(a.Stderr, "Warning: the key %s has the same name. Both keys count as one client, which may "+
				"use the same worker IDs. Use different names for different clients.\n", same[0].KeyID)
		}
		return printToken(a, c.OutputFlag, id, token)
	})
}

func checkKeyName(name string) error {
	if name == "" || len(name) > maxKeyName {
		return cli.UsageError(fmt.Errorf("--name: must have 1 to %d bytes (got %d)", maxKeyName, len(name)))
	}
	return nil
}

// ttlOf returns how long a key is valid, from the value of --expires. It returns 0 if the flag is
// not set.
func ttlOf(expires *time.Duration) (time.Duration, error) {
	switch {
	case expires == nil:
		return 0, nil
	case *expires < time.Second:
		return 0, cli.UsageError(fmt.Errorf("--expires: must be at least 1s (got %s)", *expires))
	}
	return *expires, nil
}

// printToken prints the token of a new key.
func printToken(a *cli.App, o cli.OutputFlag, id, token string) error {
	if o.JSON() {
		return output.PrintJSON(a.Stdout, createdKey{id, token})
	}
	fmt.Fprintln(a.Stderr, "The token is shown only once:")
	_, err := fmt.Fprintln(a.Stdout, token)
	return err
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

// maxListed is the maximum number of keys, grants or logins that a command lists.
const maxListed = 10_000

type keyListCmd struct {
	databaseFlags
	cli.OutputFlag
}

func (keyListCmd) Help() string {
	return `List shows all keys, newest first, without their tokens. Grant list shows what they may do.

    progressor key list --db.dsn postgres://progressor@db/progressor`
}

// listedKey is a key in the JSON output.
type listedKey struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	State       string     `json:"state"`
	CreatedBy   string     `json:"created_by"`
	CreatedTime time.Time  `json:"created_time"`
	UsedTime    *time.Time `json:"used_time,omitempty"`
	ExpireTime  *time.Time `json:"expire_time,omitempty"`
	RevokedTime *time.Time `json:"revoked_time,omitempty"`
	ReplacedBy  string     `json:"replaced_by,omitempty"`
}

func (c *keyListCmd) Run(a *cli.App) error {
	return c.withConnection(a, func(ctx context.Context, conn *pgx.Conn) error {
		keys, err := storage.AccessOf(conn).ListKeys(ctx, storage.KeyQuery{Limit: maxListed})
		if err != nil {
			return err
		}
		listed := make([]listedKey, len(keys))
		rows := make([]table.Row, len(keys))
		for n := range keys {
			k := &keys[n]
			state := output.Enum(auth.KeyState(k))
			listed[n] = listedKey{k.KeyID, k.Name, strings.ToLower(state), k.CreatedBy, k.CreatedTime, k.UsedTime,
				k.ExpireTime, k.RevokedTime, ""}
			if k.ReplacedBy != nil {
				listed[n].ReplacedBy = *k.ReplacedBy
			}
			rows[n] = table.Row{k.KeyID, output.OneLine(k.Name), listed[n].State, output.OneLine(k.CreatedBy),
				timeOrNever(&k.CreatedTime), timeOrNever(k.UsedTime), timeOrNever(k.ExpireTime)}
		}
		if c.JSON() {
			return output.PrintJSON(a.Stdout, map[string]any{"keys": listed})
		}
		none := cli.None("keys", "", false, "create one with progressor key create --name NAME --role ROLE")
		return output.PrintList(a.Stdout, none,
			table.Row{"key", "name", "state", output.Minor("created by"), output.Minor("created"), "used", "expires"},
			rows)
	})
}

// timeOrNever returns a time for a cell, or "never" for nil.
func timeOrNever(t *time.Time) any {
	if t == nil {
		return "never"
	}
	return output.Second(*t)
}

type keyRotateCmd struct {
	databaseFlags
	cli.OutputFlag
	Key     string         `arg:"" name:"key" help:"ID of the key; key list shows it."`
	Overlap time.Duration  `default:"24h" placeholder:"DURATION" help:"How long the old key stays valid; 0s revokes it at once. Default: ${default}."`
	Expires *time.Duration `placeholder:"DURATION" help:"How long the new key is valid. Default: the total validity of the old key."`
}

// maxOverlap is the maximum overlap of two keys.
const maxOverlap = 365 * 24 * time.Hour

func (keyRotateCmd) Help() string {
	return `Rotate creates a key with the name and the grants of a valid one, and prints its token once. Both keys
are valid during the overlap, and count as one client. Then the old key expires, and every engine rejects it
after 10 s at most. A key can be rotated once: rotate the new key next time.

    progressor key rotate k3v9q2m1x7ab --db.dsn postgres://progressor@db/progressor
    progressor key rotate k3v9q2m1x7ab --overlap 0s`
}

func (c *keyRotateCmd) Run(a *cli.App) error {
	if c.Overlap < 0 || c.Overlap > maxOverlap {
		return cli.UsageError(fmt.Errorf("--overlap: must be 0s to %s (got %s)", maxOverlap, c.Overlap))
	}
	ttl, err := ttlOf(c.Expires)
	if err != nil {
		return err
	}
	id, token := auth.NewToken()
	hash := auth.Hash(token)
	r := storage.Rotation{KeyID: c.Key, NewID: id, Hash: hash[:], TTL: ttl, Overlap: c.Overlap}
	return c.withConnection(a, func(ctx context.Context, conn *pgx.Conn) error {
		old, err := storage.AccessOf(conn).RotateKey(ctx, r, process.Actor{})
		if errors.Is(err, process.ErrKeyNotFound) {
			return noKey(c.Key)
		}
		if err != nil {
			return err
		}
		ends := "is revoked"
		if old.RevokedTime == nil {
			ends = "is valid until " + output.StyleOf(a.Stderr).Text(timeOrNever(old.ExpireTime))
		}
		fmt.Fprintf(a.Stderr, "The key %s replaces %s (%s), which %s.\n", id, old.KeyID, output.OneLine(old.Name), ends)
		return printToken(a, c.OutputFlag, id, token)
	})
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
	return c.withConnection(a, func(ctx context.Context, conn *pgx.Conn) error {
		key, err := storage.AccessOf(conn).RevokeKey(ctx, c.Key, process.Actor{})
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
