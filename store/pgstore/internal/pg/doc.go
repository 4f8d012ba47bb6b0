// Package pg speaks with a PostgreSQL server. It is pgx's pgconn with what package pgstore needs
// beyond that: prepared statements, values of the few types that its tables have, and a pool. pgx
// itself knows every type of PostgreSQL, which would make each program 3 MB larger.
package pg
