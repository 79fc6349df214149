package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// exactNumbers refuses JSON with an integer past 2^53, where a double loses digits, by its path: metadata and job results are
// google.protobuf.Value, and would round it without a word. The other fields of an answer are strings where they are long.
func exactNumbers(text []byte) error {
	if !longDigits(text) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return err
	}
	return exact("", value)
}

// longDigits finds a run of 16 digits or more: below that every integer is exact.
func longDigits(text []byte) bool {
	run := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			run = 0
			continue
		}
		if run++; run == 16 {
			return true
		}
	}
	return false
}

func exact(path string, value any) error {
	switch v := value.(type) {
	case json.Number:
		if !exactNumber(v.String()) {
			return fmt.Errorf("%s: the number %s would lose digits: send it as a string", strings.TrimPrefix(path, "."), v)
		}
	case map[string]any:
		for name, member := range v {
			if err := exact(path+"."+name, member); err != nil {
				return err
			}
		}
	case []any:
		for i, element := range v {
			if err := exact(path+"["+strconv.Itoa(i)+"]", element); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxInteger is 2^53: up to it a double holds every integer.
var maxInteger = big.NewInt(1 << 53)

// exactNumber tells whether a number is at most 2^53 if it is an integer. Fractions are taken as the approximations that
// they are.
func exactNumber(text string) bool {
	if strings.ContainsAny(text, ".eE") {
		return true
	}
	integer, ok := new(big.Int).SetString(text, 10)
	return ok && integer.CmpAbs(maxInteger) <= 0
}
