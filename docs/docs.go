package docs

import _ "embed"

// OpenAPI describes every method of the API for HTTP tools. It is generated from the proto files.
//
//go:embed openapi.yaml
var OpenAPI []byte
