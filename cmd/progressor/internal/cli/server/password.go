package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"
)

// maxCommandError limits how much of the standard error of a password command is reported.
const maxCommandError = 500

// check returns an error if the flags are contradictory.
func (f dsnFlag) check() error {
	switch {
	case f.DSN == "":
		return errNoDSN
	case f.PasswordFile != "" && f.PasswordCommand != "":
		return errors.New("--db.password-file, --db.password-command: set only one of them")
	}
	return checkDSN(f.DSN)
}

// password returns a function that reads the current password, or nil if neither a password file
// nor a password command is set.
func (f dsnFlag) password() func(context.Context) (string, error) {
	switch {
	case f.PasswordFile != "":
		return f.readPasswordFile
	case f.PasswordCommand != "":
		return f.runPasswordCommand
	}
	return nil
}

// current returns the DSN with the current password.
func (f dsnFlag) current(ctx context.Context) (string, error) {
	read := f.password()
	if read == nil {
		return f.DSN, nil
	}
	ctx, cancel := context.WithTimeout(ctx, passwordTimeout)
	defer cancel()
	password, err := read(ctx)
	if err != nil {
		return "", err
	}
	return withPassword(f.DSN, password), nil
}

// passwordTimeout limits how long current reads the password. The connections of an engine have
// their own limit.
const passwordTimeout = 5 * time.Second

func (f dsnFlag) readPasswordFile(context.Context) (string, error) {
	text, err := os.ReadFile(f.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("--db.password-file: %w", err)
	}
	return firstLine("--db.password-file: "+f.PasswordFile, text)
}

func (f dsnFlag) runPasswordCommand(ctx context.Context) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-c", f.PasswordCommand)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 100 * time.Millisecond // a child process may keep its output open
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("--db.password-command: timed out: %w", ctx.Err())
	case err != nil:
		output := strings.TrimSpace(stderr.String())
		return "", fmt.Errorf("--db.password-command: %w: %s", err, output[:min(len(output), maxCommandError)])
	}
	return firstLine("--db.password-command", stdout.Bytes())
}

// firstLine returns the only line of the output of source, which is the password.
func firstLine(source string, text []byte) (string, error) {
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case password == "":
		return "", fmt.Errorf("%s: contains no password", source)
	case strings.ContainsAny(password, "\r\n"):
		return "", fmt.Errorf("%s: must contain a single line", source)
	}
	return password, nil
}

// withPassword adds a password to a connection string, which is a URL or has key=value pairs. It
// replaces an existing password.
func withPassword(dsn, password string) string {
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		return dsn + separator + "password=" + strings.ReplaceAll(url.QueryEscape(password), "+", "%20")
	}
	return dsn + " password='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(password) + "'"
}
