package config

import _ "embed"

//go:generate go test -run ^Test(Schema|Reference)IsUpToDate$ . -update

//go:embed schema.json
var schemaFile []byte

// Schema returns the JSON Schema (2020-12) of the file. Editors use it to check and explain a file.
//
// Some mistakes it cannot express, such as a headroom that leaves nothing of the amount. Only
// [Parse] finds those.
func Schema() []byte { return append([]byte(nil), schemaFile...) }
