package wire

import (
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// RangeJSON returns r for the column history_range, or "" if r is nil.
func RangeJSON(r *progressorv1.HistoryRange) (string, error) {
	if r == nil {
		return "", nil
	}
	text, err := protojson.Marshal(r)
	return string(text), err
}

// Range reads the column history_range. It returns nil for "".
func Range(text string) (*progressorv1.HistoryRange, error) {
	return read[progressorv1.HistoryRange]("history_range", []byte(text))
}

// RangeOf converts a range for storage. Without a limit, it is the whole history after the offset.
func RangeOf(r *progressorv1.HistoryRange) storage.HistoryRange {
	rng := storage.HistoryRange{Offset: r.GetOffset(), Limit: -1,
		Backward: r.GetDirection() == progressorv1.HistoryRange_DIRECTION_BACKWARD}
	if r != nil && r.Limit != nil {
		rng.Limit = int(r.GetLimit())
	}
	return rng
}

// ModeRange returns the range of a history mode.
func ModeRange(mode process.HistoryMode) storage.HistoryRange {
	switch mode {
	case process.HistoryNone:
		return storage.HistoryRange{Limit: 0}
	case process.HistoryLast:
		return storage.HistoryRange{Limit: 1, Backward: true}
	default:
		return storage.HistoryRange{Limit: -1}
	}
}
