package docs

import _ "embed"

// OpenAPI is the OpenAPI description of every method of the API. It is generated from the proto
// files.
//
//go:embed openapi.yaml
var OpenAPI []byte
