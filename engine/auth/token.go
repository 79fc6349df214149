package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	tokenPrefix = "pgr_"
	loginPrefix = "pgl_" // begins the cookies of logins
	secretBytes = 32
	idBytes     = 12
	rootID      = "root"
	// maxToken exceeds the length of any token.
	maxToken = 256
)

// NewToken returns a new ID, and a token with a random secret of 256 bits: pgr_ID_SECRET.
func NewToken() (id, token string) {
	id = newID()
	return id, tokenOf(id)
}

func newID() string { return strings.ToLower(rand.Text()[:idBytes]) }

func tokenOf(id string) string { return secretToken(tokenPrefix, id) }

func secretToken(prefix, id string) string {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails
	return prefix + id + "_" + hex.EncodeToString(secret)
}

// Hash returns the SHA-256 of a token. The database stores the hash instead of the token. A token
// is random, so it does not need the slow hash that passwords need.
func Hash(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// idOf returns the ID in the token of a key. It returns false if the token is malformed.
func idOf(token string) (string, bool) { return idIn(tokenPrefix, token) }

func idIn(prefix, token string) (string, bool) {
	rest, ok := strings.CutPrefix(token, prefix)
	if !ok || len(token) > maxToken {
		return "", false
	}
	id, secret, ok := strings.Cut(rest, "_")
	if !ok || id == "" || len(id) > 32 || len(secret) != 2*secretBytes {
		return "", false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return "", false
		}
	}
	return id, true
}

// RootKey returns the token in a file, and creates the file with a new token if it does not exist.
// Only the owner may read the file.
func RootKey(path string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("create the directory of the root key: %w", err)
	}
	token := tokenOf(rootID)
	err := WriteKeyFile(path, token)
	switch {
	case errors.Is(err, fs.ErrExist):
		return readRootKey(path)
	case err != nil:
		return "", fmt.Errorf("create the root key: %w", err)
	}
	return token, nil
}

// WriteKeyFile writes a key to a new file that only its owner can read. It returns fs.ErrExist if
// the file exists.
func WriteKeyFile(path, key string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(key + "\n")
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func readRootKey(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("root key: %w", err)
	}
	defer file.Close()
	info, err := file.Stat() // describes the open file, even if another one replaces it
	if err != nil {
		return "", fmt.Errorf("root key: %w", err)
	}
	if err := checkOwner(path, info, os.Geteuid()); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(file, 2*maxToken))
	if err != nil {
		return "", fmt.Errorf("root key: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if id, ok := idOf(token); !ok || id != rootID {
		return "", fmt.Errorf("root key %s: contains no root key: delete the file to create a new one", path)
	}
	return token, nil
}

// checkOwner returns an error unless only root and the user with the given ID can read and write
// the file of the root key.
func checkOwner(path string, info fs.FileInfo, user int) error {
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("root key %s: must be readable only by its owner (mode %04o): run chmod 600 %[1]s", path,
			mode)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && stat.Uid != 0 && int(stat.Uid) != user {
		return fmt.Errorf("root key %s: must belong to the user of the engine, %d, or to root (it belongs to %d): "+
			"delete the file to create a new key, or run chown %[2]d %[1]s if you trust it", path, user, stat.Uid)
	}
	return nil
}
