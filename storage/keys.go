package storage

import "github.com/progressor-engine/progressor/process"

// keyRow is a row with the columns of a process key.
type keyRow interface {
	~struct{ Namespace, ProcessID string }
}

// keysOf converts rows to keys.
func keysOf[Row keyRow](rows []Row) []process.Key {
	keys := make([]process.Key, len(rows))
	for n, r := range rows {
		keys[n] = process.Key(r)
	}
	return keys
}

// keysParams has keys as one array per column.
type keysParams struct{ namespaces, processIDs []string }

func (k *keysParams) add(key process.Key) {
	k.namespaces = append(k.namespaces, key.Namespace)
	k.processIDs = append(k.processIDs, key.ProcessID)
}

// keysParamsOf converts keys to parameters.
func keysParamsOf(keys []process.Key) keysParams {
	params := keysParams{namespaces: make([]string, 0, len(keys)), processIDs: make([]string, 0, len(keys))}
	for _, k := range keys {
		params.add(k)
	}
	return params
}
