package pull

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/progressor-engine/progressor/engine/secrets"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/pull"
	"github.com/progressor-engine/progressor/wire"
)

const saltBytes = secrets.MACBytes // also the size of the salt of a lease

func leaseToken(l *storage.Lease) string {
	return pull.LeaseToken{
		Key:          process.Key{Namespace: l.Claim.Namespace, ProcessID: l.Claim.ProcessID},
		FencingToken: l.Claim.FencingToken, Salt: l.Salt,
	}.String()
}

// parseLeaseToken is the inverse of pull.LeaseToken.String.
func parseLeaseToken(field, token string) (pull.LeaseToken, error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil && len(b) > 0 && len(b) > 1+int(b[0])+8+saltBytes {
		name, rest := b[1:1+int(b[0])], b[1+int(b[0]):]
		key := process.Key{Namespace: string(name), ProcessID: string(rest[8+saltBytes:])}
		if wire.Plain(key.Namespace) == key.Namespace && wire.Plain(key.ProcessID) == key.ProcessID {
			return pull.LeaseToken{
				Key: key, FencingToken: int64(binary.BigEndian.Uint64(rest)), Salt: rest[8 : 8+saltBytes],
			}, nil
		}
	}
	return pull.LeaseToken{}, &process.InvalidError{
		Field: field, Message: "must be the lease_token of a lease, unchanged",
	}
}

// NamespaceOfLease returns the namespace in a lease token. It returns false if the token is
// malformed. Such tokens are rejected where they are used.
func NamespaceOfLease(token string) (string, bool) {
	t, err := parseLeaseToken("", token)
	return t.Key.Namespace, err == nil
}

// DistinctLeases returns an error if a list in a request names a lease twice, because the result
// would depend on the order. Invalid tokens are rejected where they are parsed.
func DistinctLeases[M interface{ GetLeaseToken() string }](field string, list []M) error {
	type lease struct {
		key   process.Key
		token int64
	}
	seen := make(map[lease]int, len(list))
	for n, m := range list {
		t, err := parseLeaseToken("", m.GetLeaseToken())
		if err != nil {
			continue
		}
		l := lease{t.Key, t.FencingToken}
		if first, twice := seen[l]; twice {
			return &process.InvalidError{
				Field:   fmt.Sprintf("%s[%d].lease_token", field, n),
				Message: fmt.Sprintf("is the same lease as %s[%d]", field, first),
			}
		}
		seen[l] = n
	}
	return nil
}
