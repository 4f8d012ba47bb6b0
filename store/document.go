package store

import (
	"context"
	"fmt"
)

// Bounds of documents.
const (
	MaxDocument     = 256 << 10 // bytes of a document
	MaxDocumentName = 512       // bytes of its name, and of that of its collection
	MaxDocuments    = 16        // that one step writes
)

// Document is a text that a store keeps beside its buckets, in a collection, under a name.
type Document struct {
	Name string
	// what it says; of a document that is written or compared, nil means that there is none, and
	// any other value is not empty
	Value []byte
}

// Documents is an optional feature of a store: it keeps a few thousand small documents, for as long
// as it keeps what limits have counted, or longer.
type Documents interface {
	// KeepsDocuments reports whether this store does so: one in front of another does if that does.
	KeepsDocuments() bool
	// ReadDocuments returns those documents of a collection that have one of these names, or all
	// if names is nil, in no particular order. What is returned of one document is what one step
	// wrote; of several, it may be that of different steps.
	ReadDocuments(ctx context.Context, collection string, names []string) ([]Document, error)
	// WriteDocuments writes documents in one atomic step, and removes those without a value. The
	// names are different. Nothing is written, and done is false, if the document was.Name is not
	// what was says. An error says what was done as those of [Store] do.
	WriteDocuments(ctx context.Context, collection string, was Document, docs []Document) (done bool, err error)
}

// CheckDocuments reports what is wrong with the arguments of [Documents], for stores.
func CheckDocuments(collection string, docs ...Document) error {
	if collection == "" || len(collection) > MaxDocumentName {
		return fmt.Errorf("%w: a collection's name of %d bytes is not 1 to %d", ErrInvalid, len(collection),
			MaxDocumentName)
	}
	for i := range docs {
		d := &docs[i]
		switch {
		case d.Name == "" || len(d.Name) > MaxDocumentName:
			return fmt.Errorf("%w: a document's name of %d bytes is not 1 to %d", ErrInvalid, len(d.Name),
				MaxDocumentName)
		case d.Value != nil && len(d.Value) == 0 || len(d.Value) > MaxDocument:
			return fmt.Errorf("%w: a document of %d bytes is not 1 to %d", ErrInvalid, len(d.Value), MaxDocument)
		}
	}
	return nil
}

// CheckWrite is [CheckDocuments] for a step that writes.
func CheckWrite(collection string, was Document, docs []Document) error {
	if len(docs) == 0 || len(docs) > MaxDocuments {
		return fmt.Errorf("%w: %d documents in a step are not 1 to %d", ErrInvalid, len(docs), MaxDocuments)
	}
	names := map[string]bool{}
	for i := range docs {
		if names[docs[i].Name] {
			return fmt.Errorf("%w: a step names a document twice", ErrInvalid)
		}
		names[docs[i].Name] = true
	}
	if err := CheckDocuments(collection, was); err != nil {
		return err
	}
	return CheckDocuments(collection, docs...)
}
