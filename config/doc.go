// Package config reads the policies and rules of a program, and all settings of its server, from
// one YAML file, from environment variables and from flags, and opens what they describe.
//
// Later sources take precedence: defaults, file, environment, flags. [Resolve] combines them;
// [Config.Explain] says where each value came from.
//
// Reading is strict. Unknown keys, values of the wrong type, limits that cannot work and keys given
// twice are errors, and all of them are reported together: as [Problems], each with file, line,
// column, the source line and a caret. What is allowed but seldom intended is a warning. Passwords
// in store URLs never appear in either ([RedactURL]). Other secrets are not written into the file;
// it names the variable or the file that holds them ([Secret]).
//
// [Open] is the entry for programs: from the path of a file to a [Runtime], which has an engine that
// decides, its store with a guard, metrics and warnings, and which reloads the files when they
// change. [Start] makes one from a configuration that [Resolve] returned. Who needs only the parts
// has [Config.OpenStore], [Config.Engine] (for [engine.New]) and [Watch]. [Config.Server] and
// [Config.Envoy] are plain data for the program that listens, such as drawgate serve.
//
// docs/configuration.md lists every key and every variable; [Schema] is the JSON Schema of the
// file, for editors; [Preset] has ready-made policies.
package config
