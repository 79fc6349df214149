package rpc

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
)

// publicKeysPath is the path of the keys with which receivers verify signatures. It needs no
// credentials.
const publicKeysPath = "/.well-known/progressor-keys"

// publicKeys serves the public keys that verify the requests to the processor of a namespace. The
// answer is the same for a namespace without keys and for one that does not exist.
func publicKeys(
	read func(ctx context.Context, namespace string) ([]string, error), log *slog.Logger,
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		namespace := r.URL.Query().Get("namespace")
		if namespace == "" {
			page(w, http.StatusBadRequest, "namespace: is required, as in "+publicKeysPath+"?namespace=shop")
			return
		}
		keys, err := read(r.Context(), namespace)
		if err != nil {
			log.Warn("public keys cannot be read", "namespace", namespace, "error", err)
			page(w, http.StatusServiceUnavailable, "the keys cannot be read: try again")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "max-age=10")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		answer := map[string][]string{"keys": append([]string{}, keys...)} // not null
		_ = json.NewEncoder(w).Encode(answer)                              // the client may have disconnected
	}
}
