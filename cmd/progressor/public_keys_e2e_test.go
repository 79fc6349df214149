package main

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/processor/signature"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// publicKeys returns the answer of an engine to a receiver without credentials.
func publicKeys(t *testing.T, url, query string) (keys []string, status int) {
	t.Helper()
	url += "/.well-known/progressor-keys" + query
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode == http.StatusOK {
		var answer map[string][]string
		if err := json.Unmarshal(text, &answer); err != nil || answer["keys"] == nil || len(answer) != 1 {
			t.Fatalf("%s, %v", text, err)
		}
		keys = answer["keys"]
	}
	return keys, response.StatusCode
}

// A receiver without a secret checks requests with the public keys of the engine, even while a key
// is replaced. It gets the keys of one namespace, and not those of others.
func TestPublicKeys(t *testing.T) {
	t.Parallel()
	const first = "whsk_AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
	const second = "whsk_AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="
	dsn, to := storagetest.DSN(t), newReceiver(t)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn, "--auth.mode", "required")
	_, token := newKey(t, dsn, "root", "root")
	client := d.Client
	client.Env = map[string]string{"PROGRESSOR_ADDRESS": d.URL, "PROGRESSOR_TOKEN": token}
	public := map[string]string{}
	for name, value := range map[string]string{"first": first, "second": second} {
		key, err := signature.ParseKey(value)
		if err != nil {
			t.Fatal(err)
		}
		public[name] = key.Public()
		r := putSecret(t, dsn, name, "shop", value)
		if r.Code != cli.ExitOK || !strings.Contains(r.Stdout, "receivers check signatures with "+key.Public()) {
			t.Fatalf("%+v", r)
		}
	}
	if r := putSecret(t, dsn, "public", "shop", public["first"]); r.Code != cli.ExitOK ||
		strings.Contains(r.Stdout, "receivers") {
		t.Fatalf("%+v", r)
	}
	put := func(secrets ...string) []string {
		args := []string{"namespace", "put", "shop", "--connect-url", to.URL + "/processor", "--encoding", "json"}
		for _, name := range secrets {
			args = append(args, "--signing-secret", name)
		}
		return args
	}
	const text = "the secret public must have a key that can sign, not a public key"
	if r := client.Run(t, put("public")...); r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, text) {
		t.Errorf("%+v", r)
	}
	client.OK(t, "namespace", "put", "other", "--builtin", "echo")
	for n, secrets := range [][]string{{"first"}, {"second", "first"}, {"second"}} {
		client.OK(t, put(secrets...)...)
		keys, status := publicKeys(t, d.URL, "?namespace=shop")
		if want := len(secrets); status != http.StatusOK || len(keys) != want || keys[0] != public[secrets[0]] ||
			!slices.Contains(keys, public[secrets[want-1]]) {
			t.Errorf("%v: %d %v", secrets, status, keys)
		}
		if n != 1 { // with two keys, the receiver still has the first one
			to.use(keysOf(t, keys)...)
		}
		client.OK(t, "start", "shop", "order-"+secrets[0]+string(rune('a'+n)))
		if err := to.got("/processor", "task_shop_"); err != nil {
			t.Errorf("%v: %v", secrets, err)
		}
	}
	for _, query := range []string{"?namespace=other", "?namespace=absent", "?namespace=%00"} {
		if keys, status := publicKeys(t, d.URL, query); status != http.StatusOK || len(keys) != 0 {
			t.Errorf("%s: %d %v", query, status, keys)
		}
	}
	if _, status := publicKeys(t, d.URL, ""); status != http.StatusBadRequest {
		t.Errorf("without a namespace: %d", status)
	}
}

func keysOf(t *testing.T, texts []string) (keys []signature.Key) {
	t.Helper()
	for _, text := range texts {
		key, err := signature.ParseKey(text)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}
