package protoyaml

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/progressor-engine/progressor/internal/digits"
)

// exactNumbers returns an error for an integer in a decoded node that would lose digits. Integers
// in JSON values have 53 bits. In a node that is sent as JSON text, they have the 64 bits of YAML.
func exactNumbers(node *yaml.Node, path string, bits int) error {
	switch node.Kind {
	case yaml.AliasNode:
		return exactNumbers(node.Alias, path, bits)
	case yaml.SequenceNode:
		for i, item := range node.Content {
			if err := exactNumbers(item, path+"["+strconv.Itoa(i)+"]", bits); err != nil {
				return err
			}
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			below := path + "." + node.Content[i].Value
			if node.Content[i].ShortTag() == "!!merge" {
				below = path
			}
			if err := exactNumbers(node.Content[i+1], below, bits); err != nil {
				return err
			}
		}
	case yaml.ScalarNode:
		switch n, ok := writtenInteger(node); {
		case !ok || n.CmpAbs(big.NewInt(1<<53)) <= 0:
		case bits == 64 && (n.IsInt64() || n.IsUint64()):
		case bits == 64:
			return fmt.Errorf(
				"line %d: %s: the integer %.40s has more than 64 bits and would lose digits: write it as a string",
				node.Line, path, node.Value)
		default:
			return fmt.Errorf("line %d: %s: %s", node.Line, path, digits.Lost(node.Value))
		}
	}
	return nil
}

// writtenInteger returns the integer part of a number as it is written, because YAML parses an
// integer with more than 64 bits as a float.
func writtenInteger(node *yaml.Node) (*big.Int, bool) {
	text := strings.ReplaceAll(node.Value, "_", "")
	switch node.ShortTag() {
	case "!!int":
		return new(big.Int).SetString(text, 0)
	case "!!float":
		if end := strings.IndexAny(text, ".eE"); end >= 0 {
			text = text[:end]
		}
		return new(big.Int).SetString(text, 10)
	}
	return nil, false
}
