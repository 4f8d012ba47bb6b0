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
// Programs call [Open] with the path of a file. It returns a [Runtime]: an engine that decides, its
// store with a guard, metrics and warnings. It reloads the files when they change. [Start] makes
// one from a configuration that [Resolve] returned. The parts can be used by themselves:
// [Config.OpenStore], [Config.Engine] (for [engine.New]) and [Watch]. The fields Server and Envoy
// of a [Config] are plain data for a program that listens, such as drawgate serve.
//
// docs/configuration.md lists every key and every variable; [Schema] is the JSON Schema of the
// file, for editors; [Preset] has ready-made policies.
package config
