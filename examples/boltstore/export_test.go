package boltstore

import (
	"testing"

	bolt "go.etcd.io/bbolt"
)

// Entries returns the number of records in the file.
func (s *Store) Entries(t *testing.T) (n int) {
	t.Helper()
	err := s.db.View(func(tx *bolt.Tx) error {
		n = tx.Bucket(records).Stats().KeyN
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Damage changes the last byte of every record.
func (s *Store) Damage(t *testing.T) {
	t.Helper()
	err := s.db.Update(func(tx *bolt.Tx) error {
		all := tx.Bucket(records)
		return all.ForEach(func(key, value []byte) error {
			bad := append([]byte(nil), value...)
			bad[len(bad)-1]++
			return all.Put(key, bad)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
