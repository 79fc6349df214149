package msgpack

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	low "github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// kind is the type of a value, determined by its first byte.
type kind int

const (
	kindNone kind = iota // 0xc1, which MessagePack never uses
	kindNil
	kindBool
	kindInt
	kindFloat
	kindStr
	kindBin
	kindArray
	kindMap
	kindExt
)

func (k kind) String() string {
	return [...]string{"the byte 0xc1, which is not valid in MessagePack", "nil", "a bool", "an int", "a float",
		"a str", "bin", "an array", "a map", "an extension"}[k]
}

func kindOf(c byte) kind {
	switch {
	case msgpcode.IsFixedNum(c), c >= msgpcode.Uint8 && c <= msgpcode.Int64:
		return kindInt
	case msgpcode.IsString(c):
		return kindStr
	case msgpcode.IsFixedMap(c), c == msgpcode.Map16, c == msgpcode.Map32:
		return kindMap
	case msgpcode.IsFixedArray(c), c == msgpcode.Array16, c == msgpcode.Array32:
		return kindArray
	case c == msgpcode.Nil:
		return kindNil
	case c == msgpcode.True, c == msgpcode.False:
		return kindBool
	case c == msgpcode.Float, c == msgpcode.Double:
		return kindFloat
	case msgpcode.IsBin(c):
		return kindBin
	case msgpcode.IsExt(c):
		return kindExt
	}
	return kindNone
}

// decoder decodes a message. The library reads the header of a value. The bytes of strings, bin and
// extensions are taken from data, so that a wrong length costs no memory.
type decoder struct {
	data  []byte
	src   *bytes.Reader
	low   *low.Decoder
	limit int // maximum number of values
	count int // values so far
}

// element counts a value, before it is built.
func (d *decoder) element() error {
	if d.count++; d.count > d.limit {
		return fault("the message has more than %d values: send less at a time, or large lists as one string", d.limit)
	}
	return nil
}

// short replaces an error of the library. After the check of the kind, the only possible error is
// that the data ends too early.
func short(err error) error {
	if err == nil {
		return nil
	}
	return fault("the body ends in the middle of the message")
}

// next returns the kind of the next value.
func (d *decoder) next() (kind, error) {
	c, err := d.low.PeekCode()
	if err != nil {
		return kindNone, short(err)
	}
	if k := kindOf(c); k != kindNone {
		return k, nil
	}
	return kindNone, fault("%s", kindNone)
}

// expect returns an error if the next value is not of the kind want. what describes a valid value.
func (d *decoder) expect(want kind, what string) error {
	got, err := d.next()
	if err == nil && got != want {
		return fault("must be %s, not %s", what, got)
	}
	return err
}

// take returns the next n bytes. The caller must copy them.
func (d *decoder) take(n int) ([]byte, error) {
	if n < 0 || n > d.src.Len() {
		return nil, short(io.ErrUnexpectedEOF)
	}
	begin := len(d.data) - d.src.Len()
	_, err := d.src.Seek(int64(n), io.SeekCurrent)
	return d.data[begin : begin+n : begin+n], err
}

func (d *decoder) mapLen(what string) (int, error) {
	if err := d.expect(kindMap, what); err != nil {
		return 0, err
	}
	n, err := d.low.DecodeMapLen()
	return n, short(err)
}

func (d *decoder) arrayLen(what string) (int, error) {
	if err := d.expect(kindArray, what); err != nil {
		return 0, err
	}
	n, err := d.low.DecodeArrayLen()
	return n, short(err)
}

func (d *decoder) bool() (bool, error) {
	if err := d.expect(kindBool, "true or false"); err != nil {
		return false, err
	}
	v, err := d.low.DecodeBool()
	return v, short(err)
}

// text decodes a str.
func (d *decoder) text(what string) (string, error) {
	if err := d.expect(kindStr, what); err != nil {
		return "", err
	}
	b, err := d.raw()
	if err != nil {
		return "", err
	}
	if !utf8.Valid(b) {
		return "", fault("must be valid UTF-8: send other bytes as bin")
	}
	return string(b), nil
}

// bytes decodes a bin. The result is a copy, and not nil.
func (d *decoder) bytes() ([]byte, error) {
	if err := d.expect(kindBin, "bin (bytes)"); err != nil {
		return nil, err
	}
	b, err := d.raw()
	return append([]byte{}, b...), err
}

// raw returns the bytes of a str or bin.
func (d *decoder) raw() ([]byte, error) {
	n, err := d.low.DecodeBytesLen()
	if err != nil {
		return nil, short(err)
	}
	return d.take(n)
}

func (d *decoder) ext() (extType int8, data []byte, err error) {
	extType, n, err := d.low.DecodeExtHeader()
	if err != nil {
		return 0, nil, short(err)
	}
	data, err = d.take(n)
	return extType, data, err
}

// integer is a number of MessagePack's int family: from -2^63 up to 2^64-1.
type integer struct {
	negative bool
	bits     uint64 // bits of an int64 if it is negative
}

func (n integer) String() string {
	if n.negative {
		return fmt.Sprint(int64(n.bits))
	}
	return fmt.Sprint(n.bits)
}

// int64 returns the number, if it fits.
func (n integer) int64() (int64, bool) {
	return int64(n.bits), n.negative || n.bits <= math.MaxInt64
}

// exact returns the number as a double. It returns false if the number is beyond ±2^53, where a
// double cannot represent every integer.
func (n integer) exact() (float64, bool) {
	v, ok := n.int64()
	return float64(v), ok && v >= -maxExact && v <= maxExact
}

// int decodes a number of the int family.
func (d *decoder) int() (integer, error) {
	c, err := d.low.PeekCode()
	if err != nil {
		return integer{}, short(err)
	}
	if c >= msgpcode.Uint8 && c <= msgpcode.Uint64 {
		v, err := d.low.DecodeUint64()
		return integer{false, v}, short(err)
	}
	v, err := d.low.DecodeInt64()
	return integer{v < 0, uint64(v)}, short(err)
}

func (d *decoder) float() (float64, error) {
	v, err := d.low.DecodeFloat64() // decodes both widths
	return v, short(err)
}
