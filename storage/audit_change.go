package storage

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/progressor-engine/progressor/process"
)

// ConfigChange is a change of a configuration, for the audit. Before and After are JSON. Before is
// nil if the configuration is new, and After is nil if it was deleted.
type ConfigChange struct{ Before, After json.RawMessage }

// maxAuditedConfig is the maximum size in bytes of each of the two configurations in an audit
// entry.
const maxAuditedConfig = 64 << 10

// hidden replaces secrets and payloads in audit entries.
const hidden = "REDACTED"

// hiddenFields are the fields of configurations that contain secrets or payloads. In an object, the
// values are hidden and the names are kept.
var hiddenFields = map[string]bool{
	"headers": true, "args": true, "body": true, "payload": true, "context": true,
	"password": true, "secrets": true, "token": true,
}

// Audit adds an entry with the change, if an operator made it.
func (c ConfigChange) Audit(
	ctx context.Context, db DB, method, namespace, subject string, by []process.Actor,
) error {
	if len(by) == 0 {
		return nil
	}
	return (&AuditRecord{Method: method, By: by[0], Change: c}).Record(ctx, db, namespace, subject)
}

// ConfigJSON returns the JSON of a configuration for a ConfigChange.
func ConfigJSON(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		return nil // cannot happen: callers pass rows
	}
	return text
}

// add adds the configurations to the details of an entry.
func (c ConfigChange) add(details map[string]any) {
	for name, text := range map[string]json.RawMessage{"before": c.Before, "after": c.After} {
		var value any
		if len(text) == 0 || json.Unmarshal(text, &value) != nil {
			continue
		}
		value = hideSecrets(value)
		if safe, err := json.Marshal(value); err != nil || len(safe) > maxAuditedConfig {
			value = fmt.Sprintf("%d bytes", len(text))
		}
		details[name] = value
	}
}

// hideSecrets hides the values of hiddenFields in a JSON value.
func hideSecrets(value any) any {
	switch v := value.(type) {
	case []any:
		for n := range v {
			v[n] = hideSecrets(v[n])
		}
	case map[string]any:
		for name, field := range v {
			object, isObject := field.(map[string]any)
			switch {
			case !hiddenFields[name]:
				v[name] = hideSecrets(field)
			case isObject:
				for key := range object {
					object[key] = hidden
				}
			default:
				v[name] = hidden
			}
		}
	}
	return value
}
