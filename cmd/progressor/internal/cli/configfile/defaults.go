package configfile

import (
	"fmt"
	"maps"

	"go.yaml.in/yaml/v3"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// applyDefaults adds the fields of the mapping defaults to the namespaces of the file that do not
// set them. node is nil if the file has no defaults.
func (f *File) applyDefaults(node *yaml.Node) error {
	const path = "defaults"
	if node == nil {
		return nil
	}
	defaults, err := namespaceTree(node, path)
	if err != nil {
		return err
	}
	for _, field := range []string{"namespace", "paused", "createdTime"} {
		if _, ok := defaults[field]; ok {
			return fmt.Errorf("line %d: %s.%s: each namespace has its own", node.Line, path, field)
		}
	}
	if err := protoyaml.UnmarshalTree(defaults, node, &progressorv1.Namespace{}, path); err != nil {
		return err
	}
	for i := range f.Namespaces {
		ns := &f.Namespaces[i]
		tree, err := namespaceTree(ns.node, ns.path)
		if err != nil {
			return err
		}
		ns.Namespace = &progressorv1.Namespace{}
		if err := protoyaml.UnmarshalTree(withDefaults(tree, defaults), ns.node, ns.Namespace, ns.path); err != nil {
			return err
		}
	}
	return nil
}

func namespaceTree(node *yaml.Node, path string) (map[string]any, error) {
	tree, err := protoyaml.Tree(node, (&progressorv1.Namespace{}).ProtoReflect().Descriptor(), path)
	if err != nil {
		return nil, err
	}
	return tree.(map[string]any), nil //nolint:forcetypeassert // Tree returns a map for this message
}

// withDefaults returns the fields of a namespace, with the defaults for those that it does not set.
// Each field of a retry policy has its own default. A processor is replaced completely.
func withDefaults(tree, defaults map[string]any) map[string]any {
	const retry = "retryPolicy"
	merged := maps.Clone(defaults)
	maps.Copy(merged, tree)
	if own, ok := tree[retry].(map[string]any); ok {
		if policy, ok := defaults[retry].(map[string]any); ok {
			all := maps.Clone(policy)
			maps.Copy(all, own)
			merged[retry] = all
		}
	}
	return merged
}
