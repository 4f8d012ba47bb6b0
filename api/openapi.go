package api

import _ "embed" // the document

//go:embed openapi.json
var openAPI string

// OpenAPI returns the OpenAPI 3.1 document that describes this protocol, as JSON. The server
// answers it at /openapi.json.
func OpenAPI() string { return openAPI }
