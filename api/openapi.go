package api

import _ "embed" // the document

//go:embed openapi.json
var openAPI string

// OpenAPI returns the OpenAPI 3.1 document of this protocol, as JSON. The server serves it at
// /openapi.json.
func OpenAPI() string { return openAPI }
