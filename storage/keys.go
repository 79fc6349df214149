package storage

import "github.com/progressor-engine/progressor/process"

// keyRow is a row of keys.
type keyRow interface {
	~struct{ Namespace, ProcessID string }
}

// keysOf are the keys that a statement has found.
func keysOf[Row keyRow](rows []Row) []process.Key {
	keys := make([]process.Key, len(rows))
	for n, r := range rows {
		keys[n] = process.Key(r)
	}
	return keys
}

// keysParams are keys, each column as an array.
type keysParams struct{ namespaces, processIDs []string }

func (k *keysParams) add(key process.Key) {
	k.namespaces = append(k.namespaces, key.Namespace)
	k.processIDs = append(k.processIDs, key.ProcessID)
}

// keysParamsOf are keys as statements take them.
func keysParamsOf(keys []process.Key) keysParams {
	params := keysParams{namespaces: make([]string, 0, len(keys)), processIDs: make([]string, 0, len(keys))}
	for _, k := range keys {
		params.add(k)
	}
	return params
}
