package wire

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/changes"
)

var changeKinds = map[string]progressorv1.ChangeKind{
	"event":     progressorv1.ChangeKind_CHANGE_KIND_EVENT,
	"lifecycle": progressorv1.ChangeKind_CHANGE_KIND_LIFECYCLE,
	"job":       progressorv1.ChangeKind_CHANGE_KIND_JOB,
	"step":      progressorv1.ChangeKind_CHANGE_KIND_STEP,
	"run":       progressorv1.ChangeKind_CHANGE_KIND_RUN,
	"fire":      progressorv1.ChangeKind_CHANGE_KIND_FIRE,
}

// ChangeKind returns the kind of a change by its name in the database.
func ChangeKind(name string) progressorv1.ChangeKind { return changeKinds[name] }

// Change returns a change as a message of the API.
func Change(namespace string, c *changes.Change) (*progressorv1.Change, error) {
	metadata, err := changeObject(c.Metadata)
	if err != nil {
		return nil, fmt.Errorf("metadata of change %d: %w", c.ChangeID, err)
	}
	details, err := changeObject(c.Details)
	if err != nil {
		return nil, fmt.Errorf("details of change %d: %w", c.ChangeID, err)
	}
	return &progressorv1.Change{
		ChangeId: c.ChangeID, Kind: ChangeKind(c.Kind), Type: c.Type, Namespace: namespace, ProcessId: c.ProcessID,
		Time: timestamppb.New(c.Time), EventId: c.EventID, FromStatus: c.FromStatus, ToStatus: c.ToStatus,
		Reason: c.Reason, Metadata: metadata, Payload: c.Payload, Details: details,
	}, nil
}

func changeObject(text json.RawMessage) (*structpb.Struct, error) {
	if len(text) == 0 {
		return nil, nil
	}
	m := new(structpb.Struct)
	return m, protojson.Unmarshal(text, m)
}
