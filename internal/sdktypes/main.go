package main

import (
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	protogen.Options{}.Run(func(plugin *protogen.Plugin) error {
		plugin.SupportedFeatures = uint64(pluginpb.CodeGeneratorResponse_FEATURE_PROTO3_OPTIONAL)
		a := newAPI(plugin.Files)
		for name, content := range map[string]string{
			"typescript/src/api.ts": typescript(a), "python/src/progressor/api.py": python(a),
		} {
			if _, err := plugin.NewGeneratedFile(name, "").Write([]byte(content)); err != nil {
				return err
			}
		}
		return nil
	})
}
