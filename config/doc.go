// Package config reads the policies and rules of a program, and all that its server can be told:
// from one YAML file, from environment variables, and from flags.
//
// Later sources win: defaults, file, environment, flags. [Resolve] puts them together;
// [Config.Explain] says where each value came from.
//
// Reading is strict. Unknown keys, values of the wrong type, limits that cannot work and keys given
// twice are errors, and all of them are reported together: as [Problems], each with file, line,
// column, the source line and a caret. What is allowed but seldom meant is a warning. Passwords in
// store URLs never appear in either ([RedactURL]), and other secrets do not stand in a file: it
// names the variable or the file that holds one ([Secret]).
//
// [Config.Engine] is what an engine decides by; the rest is plain data for whoever puts a server
// together. [Watch] follows the files.
//
// docs/configuration.md lists every key and every variable; [Schema] is the JSON Schema of the
// file, for editors; [Preset] has ready-made policies.
package config
