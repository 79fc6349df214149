package process

import (
	"crypto/sha256"
	"hash/maphash"

	"github.com/google/uuid"
)

// Key identifies a process.
type Key struct {
	Namespace string
	ProcessID string
}

func (k Key) String() string { return k.Namespace + "/" + k.ProcessID }

// Compare orders keys by namespace, then process ID. All transactions lock in this order.
func (k Key) Compare(o Key) int {
	switch {
	case k.Namespace < o.Namespace:
		return -1
	case k.Namespace > o.Namespace:
		return 1
	case k.ProcessID < o.ProcessID:
		return -1
	case k.ProcessID > o.ProcessID:
		return 1
	}
	return 0
}

var hashSeed = maphash.MakeSeed()

// Hash distributes keys over lanes. It is stable only within one run of the program.
func (k Key) Hash() uint64 { return maphash.Comparable(hashSeed, k) }

// RequestID identifies an idempotent request: the first 16 bytes of SHA-256 over its scope
// (namespace and, if the client chose it, process_id) and its idempotency key. The zero value means
// that the request has no key.
func RequestID(namespace, processID, idempotencyKey string) uuid.UUID {
	if idempotencyKey == "" {
		return uuid.Nil
	}
	sum := digest("request", []byte(namespace), []byte(processID), []byte(idempotencyKey))
	return uuid.UUID(sum[:16])
}

// DerivedProcessID returns the ID of a process or job whose request has an idempotency key and no
// ID. It is made from the request ID, so that repeated requests conflict in the primary key. If the
// idempotency key is a UUIDv7, the ID begins with the first half of that UUID, which contains its
// timestamp. Then new rows are neighbors in the indexes. Nodes of earlier versions derive another
// ID, but find a repeated request by its request ID.
func DerivedProcessID(requestID uuid.UUID, idempotencyKey string) string {
	key, err := uuid.Parse(idempotencyKey)
	if err == nil && key.Version() == 7 && key.Variant() == uuid.RFC4122 {
		copy(requestID[:8], key[:8])
	}
	return ShortID(requestID)
}

// DerivedUUID returns the ID of a run or a bulk whose request has an idempotency key and no ID. It
// is a UUIDv8. The request ID of the process depends on this ID, so nodes of all versions must
// derive the same ID.
func DerivedUUID(requestID uuid.UUID) string {
	id := requestID
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// Fingerprint distinguishes a repeated request from a different one with the same key. It covers
// the method and the arguments.
func Fingerprint(method string, args ...[]byte) []byte {
	sum := digest(method, args...)
	return sum[:16]
}

// digest hashes parts with their lengths, so that no two lists of parts have the same bytes.
func digest(first string, parts ...[]byte) [sha256.Size]byte {
	h := sha256.New()
	writePart := func(p []byte) {
		n := len(p)
		h.Write([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
		h.Write(p)
	}
	writePart([]byte(first))
	for _, p := range parts {
		writePart(p)
	}
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}

// Actor is the origin of a request.
type Actor struct {
	Name   string // "" if requests are not authenticated
	Source string // the address of the client
	Via    string // process_id of the bulk or run that issued the command, or ""

	RequestID string // ID of the request in logs and traces, or ""
}
