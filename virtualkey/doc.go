// Package virtualkey keeps virtual keys of the gateway in the store, where administrators change
// them while gateways run.
//
// A [Book] is the keys as one process knows them. It looks into the store about once a second, for
// one small document, the head, which has the number of the latest change and a random stamp. If
// that is another one than it knows, it reads what has changed since. So what one process changes
// is in force in all of them within a second, and a look costs the store nearly nothing.
//
// A change writes the head, the key and a page of the history in one step, which is made only if
// the head is still the one that was read: of two administrators, the second one decides by what
// the first has done. The stamps tell a store that has lost its last changes, as Redis can in a
// fail-over, from one that has none: another change with the same number has another stamp.
//
// A store that does not answer, or has lost all keys, leaves those in force that are known.
// [Book.Current] says that others may exist.
package virtualkey
