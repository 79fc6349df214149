package cli

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
)

// Set assigns the value of a flag, if the flag is set.
func Set[T any](into, value *T) {
	if value != nil {
		*into = *value
	}
}

// SetDuration assigns the value of a flag, if the flag is set.
func SetDuration(into **durationpb.Duration, value *time.Duration) {
	if value != nil {
		*into = durationpb.New(*value)
	}
}

// Given is a flag of a command, and whether it is set.
type Given struct {
	Flag string
	Set  bool
}

// SetFlags returns the names of the flags that are set.
func SetFlags(flags ...Given) (names []string) {
	for _, f := range flags {
		if f.Set {
			names = append(names, f.Flag)
		}
	}
	return names
}

// Requires returns the error for flags that are set without the flag that they require. It returns
// nil if there are none.
func Requires(needed string, flags []string) error {
	switch n := len(flags); n {
	case 0:
		return nil
	case 1:
		return UsageError(fmt.Errorf("%s requires %s", flags[0], needed))
	default:
		return UsageError(
			fmt.Errorf("%s and %s require %s", strings.Join(flags[:n-1], ", "), flags[n-1], needed))
	}
}

// SetEnum parses an enum value in upper or lower case, with or without the prefix of its type, and
// assigns it. It ignores "".
func SetEnum[E interface {
	~int32
	protoreflect.Enum
}](flag, value string, put func(E)) error {
	if value == "" {
		return nil
	}
	values := E(0).Descriptor()
	name, err := protoyaml.EnumName(values, value)
	if err != nil {
		return UsageError(fmt.Errorf("%s: %w", flag, err))
	}
	put(E(values.Values().ByName(protoreflect.Name(name)).Number()))
	return nil
}
