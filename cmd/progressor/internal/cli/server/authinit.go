package server

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/engine/secrets"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

type authCmd struct {
	Init authInitCmd `cmd:"" help:"Create a master key and a first key, which may do everything."`
}

type authInitCmd struct {
	databaseFlags
	cli.OutputFlag
	Dir  string `default:"." placeholder:"DIR" help:"Directory of the new files. Default: the current one."`
	Name string `default:"operator" placeholder:"NAME" help:"What the first key is for. Default: ${default}."`
}

func (authInitCmd) Help() string {
	return `Init prepares a database for engines that require authentication. It writes two files that only
their owner can read, and prints the next commands:

    DIR/master-key   a new master key, which encrypts secrets. All nodes need the file
    DIR/token        the token of a new key with the role root

A master key that exists is kept. Init fails if DIR/token exists, or if there is a valid key with this
name. It needs a migrated database, and a database role that may write api_keys and grants.

    progressor auth init --dir /etc/progressor --db.dsn postgres://progressor@db/progressor`
}

// initialAccess is the JSON output of auth init.
type initialAccess struct {
	MasterKeyFile string `json:"master_key_file"`
	TokenFile     string `json:"token_file"`
	KeyID         string `json:"key_id"`
}

func (c *authInitCmd) Run(a *cli.App) error {
	if err := checkKeyName(c.Name); err != nil {
		return err
	}
	made := initialAccess{
		MasterKeyFile: filepath.Join(c.Dir, "master-key"), TokenFile: filepath.Join(c.Dir, "token"),
	}
	return c.withConnection(a, func(ctx context.Context, conn *pgx.Conn) error {
		access := storage.AccessOf(conn)
		same, err := access.ListKeys(ctx, storage.KeyQuery{Name: c.Name, ValidOnly: true, Limit: 1})
		if err != nil {
			return err
		}
		if len(same) > 0 {
			return fmt.Errorf("the key %s already has the name %s: use its token, or run progressor key create",
				same[0].KeyID, c.Name)
		}
		if _, err := os.Lstat(made.TokenFile); err == nil {
			return fmt.Errorf("%s: the file exists: use its token, or remove it", made.TokenFile)
		}
		kept, err := ensureMasterKey(ctx, conn, made.MasterKeyFile)
		if err != nil {
			return err
		}
		id, token := auth.NewToken()
		if err := auth.WriteKeyFile(made.TokenFile, token); err != nil {
			return err
		}
		hash := auth.Hash(token)
		err = access.CreateKey(ctx, storage.NewKey{KeyID: id, Name: c.Name, Hash: hash[:], Grants: []storage.GrantKey{
			{Principal: auth.KeyPrincipal(id), Role: "root", Namespaces: auth.Everywhere},
		}}, process.Actor{})
		if _, stored := errors.AsType[*pgconn.PgError](err); stored {
			return errors.Join(err, os.Remove(made.TokenFile))
		}
		if err != nil {
			return fmt.Errorf("%w: it is unknown whether the key was stored: try the token in %s, or remove the file "+
				"and run progressor key revoke %s", err, made.TokenFile, id)
		}
		made.KeyID = id
		return c.print(a, made, kept)
	})
}

func (c *authInitCmd) print(a *cli.App, made initialAccess, kept bool) error {
	if c.JSON() {
		return output.PrintJSON(a.Stdout, made)
	}
	verb := "wrote"
	if kept {
		verb = "kept "
	}
	_, err := fmt.Fprintf(a.Stdout, `%s  %s  encrypts secrets: copy it to all nodes, and make a backup
wrote  %s  the token of the key %s, which may do everything

Start each node with:
  --auth.mode required --secrets.master-key-file %[2]s
Commands read the token from a variable:
  export PROGRESSOR_TOKEN_FILE=%[3]s
  progressor whoami
`, verb, made.MasterKeyFile, made.TokenFile, made.KeyID)
	return err
}

// ensureMasterKey creates a file with a master key, or checks the file that exists.
func ensureMasterKey(ctx context.Context, conn *pgx.Conn, path string) (kept bool, err error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		stored, err := storage.SecretsOf(conn).List(ctx)
		if err != nil {
			return false, err
		}
		if len(stored) > 0 {
			return false, fmt.Errorf("the database has secrets of another master key: copy its file to %s first", path)
		}
	}
	secret := make([]byte, storage.SealKeyBytes)
	rand.Read(secret)
	err = auth.WriteKeyFile(path, base64.StdEncoding.EncodeToString(secret))
	if errors.Is(err, fs.ErrExist) {
		_, err = secrets.ReadMasterKeys(path)
		return true, err
	}
	return false, err
}
