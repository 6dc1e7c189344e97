// Package schema holds the JSON schema of scenario files, for editors and for
// programs that write scenarios. A test generates the schema from the structs of a
// scenario and the comments on their fields.
package schema

import _ "embed"

// JSON is the schema, of draft 2020-12 (https://json-schema.org/specification). A
// field that counts a unit names it as "x-unit".
//
//go:embed scenario.json
var JSON []byte
