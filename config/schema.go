package config

import _ "embed"

//go:generate go test -run ^TestSchemaIsUpToDate$ . -update

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (2020-12) of the file. Editors that know YAML check and explain a
// file by it.
//
// What it cannot say, such as that a headroom leaves something of the amount, is found by [Parse]
// alone.
func Schema() []byte { return append([]byte(nil), schema...) }
