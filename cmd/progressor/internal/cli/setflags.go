package cli

import (
	"fmt"
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
