package storage

import (
	"encoding/binary"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// encodeArrays registers codecs that encode the array parameters of a lane's statements with plain
// loops. The codecs of pgx use reflection and an interface value for each element, and the text
// format for UUIDs. They took a sixth of the engine's CPU time for a call.
func encodeArrays(conn *pgx.Conn) {
	m := conn.TypeMap()
	useArrayCodec(m, pgtype.TextArrayOID, pgtype.TextOID, func(s string) int { return len(s) },
		func(buf []byte, s string) ([]byte, bool) { return append(buf, s...), true })
	useArrayCodec(m, pgtype.ByteaArrayOID, pgtype.ByteaOID, func(b []byte) int { return len(b) },
		func(buf, b []byte) ([]byte, bool) { return append(buf, b...), b != nil })
	useArrayCodec(m, pgtype.UUIDArrayOID, pgtype.UUIDOID, func(uuid.UUID) int { return 16 },
		func(buf []byte, id uuid.UUID) ([]byte, bool) { return append(buf, id[:]...), true })
	useArrayCodec(m, pgtype.BoolArrayOID, pgtype.BoolOID, func(bool) int { return 1 },
		func(buf []byte, b bool) ([]byte, bool) {
			if b {
				return append(buf, 1), true
			}
			return append(buf, 0), true
		})
	useArrayCodec(m, pgtype.Int4ArrayOID, pgtype.Int4OID, func(int32) int { return 4 },
		func(buf []byte, n int32) ([]byte, bool) {
			return binary.BigEndian.AppendUint32(buf, uint32(n)), true
		})
	useArrayCodec(m, pgtype.Int8ArrayOID, pgtype.Int8OID, func(int64) int { return 8 },
		func(buf []byte, n int64) ([]byte, bool) {
			return binary.BigEndian.AppendUint64(buf, uint64(n)), true
		})
}

// arrayCodec is the codec of an array type that encodes []T itself.
type arrayCodec[T any] struct {
	pgtype.Codec // for everything else
	element      uint32
	size         func(value T) int // in bytes
	add          func(buf []byte, value T) (grown []byte, notNull bool)
}

func useArrayCodec[T any](m *pgtype.Map, array, element uint32, size func(T) int, add func([]byte, T) ([]byte, bool)) {
	if t, ok := m.TypeForOID(array); ok {
		m.RegisterType(&pgtype.Type{Name: t.Name, OID: array, Codec: &arrayCodec[T]{t.Codec, element, size, add}})
	}
}

// PlanEncode implements pgtype.Codec.
func (c *arrayCodec[T]) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([]T); ok && format == pgtype.BinaryFormatCode {
		return arrayPlan[T]{c}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

type arrayPlan[T any] struct{ codec *arrayCodec[T] }

// Encode implements pgtype.EncodePlan. pgx has checked that the slice is not nil.
func (p arrayPlan[T]) Encode(value any, buf []byte) ([]byte, error) {
	values := value.([]T)
	room := 20
	for _, v := range values {
		room += 4 + p.codec.size(v)
	}
	buf = slices.Grow(buf, room)
	head := len(buf)
	big := binary.BigEndian
	buf = big.AppendUint32(buf, uint32(min(len(values), 1)))
	buf = big.AppendUint32(buf, 0) // whether there are NULLs
	buf = big.AppendUint32(buf, p.codec.element)
	if len(values) == 0 {
		return buf, nil
	}
	buf = big.AppendUint32(buf, uint32(len(values)))
	buf = big.AppendUint32(buf, 1) // lower bound
	for _, v := range values {
		at := len(buf)
		grown, notNull := p.codec.add(append(buf, 0, 0, 0, 0), v)
		buf = grown
		size := uint32(len(buf) - at - 4)
		if !notNull {
			size = 1<<32 - 1
			big.PutUint32(buf[head+4:], 1)
		}
		big.PutUint32(buf[at:], size)
	}
	return buf, nil
}

// roomToSend is an empty message that reserves space for the messages that follow. pgx starts each
// pipeline with 1 KiB and doubles it.
type roomToSend int

// Frontend implements pgproto3.FrontendMessage.
func (roomToSend) Frontend() {}

// Decode implements pgproto3.Message.
func (roomToSend) Decode([]byte) error { return nil }

// Encode implements pgproto3.Message.
func (r roomToSend) Encode(buf []byte) ([]byte, error) { return slices.Grow(buf, int(r)), nil }
