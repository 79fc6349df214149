package rpc

import (
	"fmt"
	"strings"

	"github.com/progressor-engine/progressor/process"
)

// parseFilter reads the filter of ListProcesses: "" for every process, or status = NAME. The name may be quoted, in
// either case, and with the prefix of the enum: status = ERROR, status="error", status = PROCESS_STATUS_ERROR.
func parseFilter(filter string) (process.Status, error) {
	filter = strings.TrimSpace(filter)
	if filter == "" {
		return "", nil
	}
	left, right, found := strings.Cut(filter, "=")
	if !found || strings.TrimSpace(left) != "status" {
		return "", badFilter("only a status can be asked for, as in status = ERROR")
	}
	name := strings.TrimSpace(right)
	if n := len(name); n >= 2 && (name[0] == '"' || name[0] == '\'') && name[n-1] == name[0] {
		name = name[1 : n-1]
	}
	status := process.Status(strings.TrimPrefix(strings.ToUpper(name), "PROCESS_STATUS_"))
	names := make([]string, 0, 6)
	for _, s := range process.Statuses() {
		if s == status {
			return s, nil
		}
		names = append(names, string(s))
	}
	return "", badFilter(fmt.Sprintf("want status = NAME, where NAME is one of %s", strings.Join(names, ", ")))
}

func badFilter(message string) error {
	return &process.InvalidError{Field: "filter", Message: "cannot be understood: " + message}
}
