package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/engine/secrets"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/signature"
	"github.com/progressor-engine/progressor/storage"
)

const flagMasterKeyFile = "--secrets.master-key-file"

// secretsFlags determine the keys that encrypt secrets and headers.
type secretsFlags struct {
	MasterKeyFile string `placeholder:"FILE" setting:"" help:"File of the keys that encrypt secrets and headers, one per line, 32 bytes in base64: the first one encrypts, all decrypt. Must be the same on all nodes. Default: a key in the database."`
}

// open returns a vault with the keys of the file.
func (f secretsFlags) open(stored storage.Secrets) (*secrets.Vault, error) {
	var keys [][]byte
	if f.MasterKeyFile != "" {
		var err error
		if keys, err = secrets.ReadMasterKeys(f.MasterKeyFile); err != nil {
			return nil, cli.UsageError(fmt.Errorf("%s: %w", flagMasterKeyFile, err))
		}
	}
	return secrets.New(stored, keys)
}

// openFor returns the vault of a node. It logs the secrets that the node cannot decrypt. They do
// not prevent its start, because other namespaces may not need them.
func (f secretsFlags) openFor(ctx context.Context, stored storage.Secrets, log *slog.Logger) (*secrets.Vault, error) {
	vault, err := f.open(stored)
	if err != nil {
		return nil, err
	}
	all, err := stored.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if err := vault.CheckKey(s); err != nil {
			log.Error("requests that use a secret will fail", "cause", err)
		}
	}
	go logEncrypted(ctx, vault, stored, log)
	return vault, nil
}

const (
	// maxLoggedHeaders is the maximum number of headers that logEncrypted names.
	maxLoggedHeaders = 20
	// encryptedTimeout limits how long logEncrypted reads all crons.
	encryptedTimeout = time.Minute
)

// logEncrypted logs the headers and the fields of sinks that the node cannot decrypt.
func logEncrypted(ctx context.Context, vault *secrets.Vault, stored storage.Secrets, log *slog.Logger) {
	limit, cancel := context.WithTimeout(ctx, encryptedTimeout)
	defer cancel()
	all, err := stored.ListEncryptedHeaders(limit)
	if err != nil {
		if ctx.Err() == nil {
			log.Warn("cannot check the keys of encrypted headers", "error", err)
		}
		return
	}
	unknown := 0
	for _, h := range all {
		err := vault.CheckKeyID(h.KeyID)
		if err == nil {
			continue
		}
		if unknown++; unknown <= maxLoggedHeaders {
			log.Warn("a header cannot be decrypted: requests that need it will fail", "namespace", h.Namespace,
				"kind", h.Kind, "name", h.Name, "header", h.Header, "cause", err)
		}
	}
	if unknown > maxLoggedHeaders {
		log.Warn("more headers cannot be decrypted; progressor secret list --all names what contains them", "count",
			unknown, "logged", maxLoggedHeaders)
	}
}

type secretCmd struct {
	Put    secretPutCmd    `cmd:"" help:"Create or replace a secret that headers of requests use."`
	List   secretListCmd   `cmd:"" help:"List the secrets, without their values."`
	Remove secretRemoveCmd `cmd:"" help:"Delete a secret."`
}

// secretArgs identify a secret.
type secretArgs struct {
	Name       string `arg:"" name:"name" help:"Name of the secret; headers refer to it as $${secret:NAME}."`
	Namespaces string `required:"" placeholder:"PATTERN" help:"Namespaces that may use it: NAME, PREFIX* or *, such as shop/*."`
}

func (s *secretArgs) key() storage.SecretKey {
	return storage.SecretKey{Name: s.Name, Namespaces: s.Namespaces}
}

type secretPutCmd struct {
	databaseFlags
	cli.OutputFlag
	secretArgs
	ValueFile string       `placeholder:"FILE" help:"File with the value. Default: standard input. A line break at its end is removed."`
	Secrets   secretsFlags `embed:"" prefix:"secrets."`
}

func (secretPutCmd) Help() string {
	return `Put encrypts a value and stores it in the database. Headers of processors and of HTTP targets of crons
use it as ${secret:NAME}, such as --header 'authorization=Bearer ${secret:stripe}'. Every engine uses a
new value after 10 s at most. If several secrets with this name match a namespace, it uses the one
with the longest pattern. The value is read from standard input or a file, never from an argument,
because other users of the machine can see arguments.

    progressor secret put stripe --namespaces 'shop/*' --value-file stripe.key
    pass show stripe | progressor secret put stripe --namespaces 'shop/*'`
}

// storedSecret is a stored secret in the JSON output.
type storedSecret struct {
	Name       string `json:"name"`
	Namespaces string `json:"namespaces"`
	Key        string `json:"key"`
	PublicKey  string `json:"public_key,omitempty"` // "" if the secret is not a private key
}

func (c *secretPutCmd) Run(a *cli.App) error {
	value, err := c.read(a)
	if err != nil {
		return err
	}
	return c.withConnection(a, func(ctx context.Context, conn *pgx.Conn) error {
		stored := storage.SecretsOf(conn)
		vault, err := c.Secrets.open(stored)
		if err != nil {
			return err
		}
		if err := c.checkKeys(ctx, stored, vault); err != nil {
			return err
		}
		sealed, err := vault.SealSecret(ctx, c.key(), value)
		if err != nil {
			return secretError(err)
		}
		if err := storage.PutSecret(ctx, conn, c.key(), sealed); err != nil {
			return err
		}
		if c.JSON() {
			return output.PrintJSON(a.Stdout, storedSecret{c.Name, c.Namespaces, vault.KeyID(), publicKeyOf(value)})
		}
		text := fmt.Sprintf("stored secret %s for %s, encrypted with %s\n", c.Name, c.Namespaces,
			showKey(vault.KeyID()))
		if public := publicKeyOf(value); public != "" {
			text += "receivers check signatures with " + public + "\n"
		}
		_, err = io.WriteString(a.Stdout, text)
		return err
	})
}

// publicKeyOf returns the public key of a private key that signs requests, or "" for other secrets.
func publicKeyOf(value string) string {
	key, err := signature.ParseKey(value)
	if err != nil || !key.CanSign() {
		return ""
	}
	return key.Public()
}

// read returns the value without its final line break.
func (c *secretPutCmd) read(a *cli.App) (string, error) {
	file := c.ValueFile
	if file == "" {
		if file = "-"; a.Interactive {
			return "", cli.UsageError(errors.New("--value-file: is required on a terminal, which would show the " +
				"value: name a file, or pipe the value into the command"))
		}
	}
	text, err := a.ReadFile("--value-file", file)
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), err
}

// checkKeys returns an error if the database has other secrets whose key this command does not
// know. The engines have that key. They probably do not have the key that this command would use.
func (c *secretPutCmd) checkKeys(ctx context.Context, stored storage.Secrets, vault *secrets.Vault) error {
	all, err := stored.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if (storage.SecretKey{Name: s.Name, Namespaces: s.Namespaces}) == c.key() {
			continue
		}
		if err := vault.CheckKey(s); err != nil {
			return &cli.CodedError{Code: cli.ExitConflict, Err: err,
				Next: "use the " + flagMasterKeyFile + " of the engines; if the key is lost, remove all secrets " +
					"that it has encrypted (progressor secret list), and put them again"}
		}
	}
	return nil
}

// secretError replaces the field name in an error of the vault with the argument or flag.
func secretError(err error) error {
	invalid, ok := errors.AsType[*process.InvalidError](err)
	if !ok {
		return err
	}
	flag := map[string]string{"name": "<name>", "namespaces": "--namespaces", "value": "--value-file"}[invalid.Field]
	return cli.UsageError(fmt.Errorf("%s: %s", flag, invalid.Message))
}

// showKey describes the key that encrypted a secret.
func showKey(id string) string {
	if id == secrets.DatabaseKey {
		return "the key in the database"
	}
	return "the master key " + id
}

type secretListCmd struct {
	databaseFlags
	cli.OutputFlag
	All bool   `help:"Also list the namespaces, crons and sinks with encrypted headers, keys or passwords."`
	Key string `placeholder:"KEY" help:"List only what this key has encrypted."`
}

func (secretListCmd) Help() string {
	return `List shows all secrets without their values. The column KEY shows which key encrypted a
secret: the key in the database, or the ID of a key in the file of master keys. With --all and --key,
it shows what must be put again before that key can be removed.

    progressor secret list --db.dsn postgres://progressor@db/progressor
    progressor secret list --all --key 5d0f1c2a9b3e`
}

// listedSecret is a secret in the JSON output.
type listedSecret struct {
	Name        string    `json:"name"`
	Namespaces  string    `json:"namespaces"`
	Key         string    `json:"key"`
	CreatedBy   string    `json:"created_by"`
	UpdatedTime time.Time `json:"updated_time"`
}

// encryptedObject is a namespace, cron or sink with encrypted values in the JSON output.
type encryptedObject struct {
	Kind      string `json:"kind"` // "namespace", "cron" or "sink"
	Namespace string `json:"namespace"`
	Name      string `json:"name,omitempty"` // "" for a namespace
	Key       string `json:"key"`
}

func (c *secretListCmd) Run(a *cli.App) error {
	return c.withConnection(a, func(ctx context.Context, conn *pgx.Conn) error {
		stored := storage.SecretsOf(conn)
		all, err := stored.List(ctx)
		if err != nil {
			return err
		}
		var others []storage.EncryptedObject
		if c.All {
			if others, err = stored.ListEncrypted(ctx); err != nil {
				return err
			}
		}
		if c.Key != "" {
			all = slices.DeleteFunc(all, func(s storage.ListedSecret) bool { return s.KeyID != c.Key })
			others = slices.DeleteFunc(others, func(o storage.EncryptedObject) bool { return o.KeyID != c.Key })
		}
		if c.JSON() {
			return c.printJSON(a, all, others)
		}
		return c.printTable(a, all, others)
	})
}

func (c *secretListCmd) printJSON(
	a *cli.App, all []storage.ListedSecret, others []storage.EncryptedObject,
) error {
	listed, encrypted := make([]listedSecret, len(all)), make([]encryptedObject, len(others))
	for n, s := range all {
		listed[n] = listedSecret{s.Name, s.Namespaces, s.KeyID, s.CreatedBy, s.UpdatedTime}
	}
	for n, o := range others {
		encrypted[n] = encryptedObject{o.Kind, o.Namespace, o.Name, o.KeyID}
	}
	lists := map[string]any{"secrets": listed}
	if c.All {
		lists["encrypted"] = encrypted
	}
	return output.PrintJSON(a.Stdout, lists)
}

func (c *secretListCmd) printTable(
	a *cli.App, all []storage.ListedSecret, others []storage.EncryptedObject,
) error {
	head, kind := table.Row{"name", "namespaces", "key", output.Minor("stored by"), "stored"}, table.Row{}
	if c.All {
		head, kind = append(table.Row{"kind"}, head...), table.Row{"secret"}
	}
	rows := make([]table.Row, 0, len(all)+len(others))
	for _, s := range all {
		rows = append(rows, slices.Concat(kind, table.Row{s.Name, s.Namespaces, output.OneLine(s.KeyID),
			output.OneLine(s.CreatedBy), output.Second(s.UpdatedTime)}))
	}
	for _, o := range others {
		rows = append(rows, table.Row{o.Kind, o.Name, o.Namespace, output.OneLine(o.KeyID), "", ""})
	}
	what := "secrets"
	if c.All {
		what = "encrypted values"
	}
	none := cli.None(what, "", c.Key != "", "store one with progressor secret put NAME --namespaces PATTERN")
	return output.PrintList(a.Stdout, none, head, rows)
}

type secretRemoveCmd struct {
	databaseFlags
	secretArgs
}

func (secretRemoveCmd) Help() string {
	return `Remove deletes a secret. Every engine applies this after 10 s at most. Requests whose headers refer to the
secret then fail.

    progressor secret remove stripe --namespaces 'shop/*'`
}

func (c *secretRemoveCmd) Run(a *cli.App) error {
	return c.withConnection(a, func(ctx context.Context, conn *pgx.Conn) error {
		removed, err := storage.RemoveSecret(ctx, conn, c.key())
		switch {
		case err != nil:
			return err
		case !removed:
			return &cli.CodedError{Code: cli.ExitNotFound, Next: "progressor secret list",
				Err: fmt.Errorf("there is no secret %.80q for %.200q", c.Name, c.Namespaces)}
		}
		_, err = fmt.Fprintf(a.Stdout, "removed secret %s for %s\n", c.Name, c.Namespaces)
		return err
	})
}
