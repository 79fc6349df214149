package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	typeJSON    = "application/json"
	typeMsgpack = "application/msgpack"
)

// processorPaths is the prefix of the paths that processors serve.
const processorPaths = "/progressor.v1.ProcessorService/"

const processorServer = `
- url: http://127.0.0.1:9000
  description: The URL of the processor, as url in the configuration of its namespace.
`

const duration = `
type: string
pattern: ^-?[0-9]+(\.[0-9]{1,9})?s$
examples: ["1.5s", "3600s"]
description: Seconds, as text. In MessagePack, a number of seconds is also accepted.
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "openapi:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	if len(files) != 1 {
		return errors.New("usage: openapi FILE")
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	if text, err = finish(text); err != nil {
		return fmt.Errorf("%s: %w", files[0], err)
	}
	return os.WriteFile(files[0], text, 0o644)
}

// finish completes the output of the generator. It leaves a completed document unchanged.
func finish(text []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if len(document.Content) == 0 {
		return nil, errors.New("the document is empty")
	}
	root := document.Content[0]
	if err := finishPaths(member(root, "paths")); err != nil {
		return nil, err
	}
	schemas := member(member(root, "components"), "schemas")
	if err := replace(schemas, "google.protobuf.Duration", duration); err != nil {
		return nil, err
	}
	walk(schemas, finishBytes)
	var finished bytes.Buffer
	encoder := yaml.NewEncoder(&finished)
	encoder.SetIndent(2)
	err := encoder.Encode(&document)
	return finished.Bytes(), err
}

func finishPaths(paths *yaml.Node) error {
	if paths == nil || len(paths.Content) == 0 {
		return errors.New("the document has no paths")
	}
	walk(paths, func(n *yaml.Node) {
		if json := member(n, typeJSON); json != nil && member(n, typeMsgpack) == nil {
			n.Content = append(n.Content, scalar(typeMsgpack), json)
		}
		if name := member(n, "name"); name != nil && name.Value == "Connect-Protocol-Version" {
			remove(n, "required")
		}
	})
	for i := 0; i+1 < len(paths.Content); i += 2 {
		if strings.HasPrefix(paths.Content[i].Value, processorPaths) {
			if err := replace(paths.Content[i+1], "servers", processorServer); err != nil {
				return err
			}
		}
	}
	return nil
}

// finishBytes states that a bytes field is base64, converts its limit to the limit of the base64,
// and removes a useless remark of the generator.
func finishBytes(n *yaml.Node) {
	format := member(n, "format")
	if format == nil || format.Value != "byte" || member(n, "contentEncoding") != nil {
		return
	}
	n.Content = append(n.Content, scalar("contentEncoding"), scalar("base64"))
	if most := member(n, "maxLength"); most != nil {
		if limit, err := strconv.Atoi(most.Value); err == nil {
			most.Value = strconv.Itoa((limit + 2) / 3 * 4)
		}
	}
	if remark := member(n, "description"); remark != nil {
		remark.Value = strings.TrimSpace(strings.ReplaceAll(remark.Value, "bytes.const = []", ""))
		if remark.Value == "" {
			remove(n, "description")
		}
	}
}

// walk calls do for every node, parents first.
func walk(n *yaml.Node, do func(*yaml.Node)) {
	if n == nil {
		return
	}
	do(n)
	for _, child := range n.Content {
		walk(child, do)
	}
}

// member returns the value of a key, or nil.
func member(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func scalar(text string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: text} }

func remove(n *yaml.Node, key string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = append(n.Content[:i], n.Content[i+2:]...)
			return
		}
	}
}

// replace sets the value of a key, as YAML.
func replace(n *yaml.Node, key, text string) error {
	var value yaml.Node
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if n == nil {
		return fmt.Errorf("%s: the node that should contain it is missing", key)
	}
	remove(n, key)
	n.Content = append(n.Content, scalar(key), value.Content[0])
	return nil
}
