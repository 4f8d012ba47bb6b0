package pg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The types that statements have, and those of their arrays:
// https://github.com/postgres/postgres/blob/REL_15_STABLE/src/include/catalog/pg_type.dat.
const (
	oidBool      = 16
	oidBytes     = 17
	oidInt8      = 20
	oidInt2      = 21
	oidInt4      = 23
	oidText      = 25
	oidBytesList = 1001
	oidInt2List  = 1005
	oidInt4List  = 1007
	oidTextList  = 1009
	oidInt8List  = 1016
)

// encode returns a parameter's type, and its value as the server reads it. A nil pointer or slice
// is NULL.
func encode(arg any) (oid uint32, value []byte, err error) {
	switch v := arg.(type) {
	case string:
		return oidText, []byte(v), nil
	case *string:
		if v == nil {
			return oidText, nil, nil
		}
		return oidText, []byte(*v), nil
	case []byte:
		return oidBytes, v, nil
	case bool:
		if v {
			return oidBool, []byte{1}, nil
		}
		return oidBool, []byte{0}, nil
	case int:
		return oidInt8, binary.BigEndian.AppendUint64(nil, uint64(v)), nil
	case int64:
		return oidInt8, binary.BigEndian.AppendUint64(nil, uint64(v)), nil
	case int32:
		return oidInt4, binary.BigEndian.AppendUint32(nil, uint32(v)), nil
	case int16:
		return oidInt2, binary.BigEndian.AppendUint16(nil, uint16(v)), nil
	case *int16:
		if v == nil {
			return oidInt2, nil, nil
		}
		return encode(*v)
	case []string:
		return oidTextList, list(v, oidText), nil
	case [][]byte:
		return oidBytesList, list(v, oidBytes), nil
	case []int64:
		return oidInt8List, list(v, oidInt8), nil
	case []int32:
		return oidInt4List, list(v, oidInt4), nil
	case []int16:
		return oidInt2List, list(v, oidInt2), nil
	}
	return 0, nil, fmt.Errorf("a value of type %T cannot be sent", arg)
}

// list returns an array of one dimension:
// https://github.com/postgres/postgres/blob/REL_15_STABLE/src/backend/utils/adt/arrayfuncs.c
// (array_recv).
func list[T any](values []T, oid uint32) []byte {
	if values == nil {
		return nil
	}
	one := binary.BigEndian.AppendUint32
	dimensions := uint32(min(1, len(values)))
	b := one(one(one(nil, dimensions), 1), oid) // 1: there may be NULL
	if dimensions == 1 {
		b = one(one(b, uint32(len(values))), 1) // 1: the first index
	}
	for _, v := range values {
		_, text, _ := encode(v) // is known
		if text == nil {
			b = one(b, null)
			continue
		}
		b = append(one(b, uint32(len(text))), text...)
	}
	return b
}

const null = 1<<32 - 1 // as the length of a value

// Row has the columns of a row, as the server wrote them. It is valid until the next one is read.
type Row [][]byte

// Clone returns a copy that stays valid.
func (r Row) Clone() Row {
	c := make(Row, len(r))
	for i := range r {
		c[i] = bytes.Clone(r[i])
	}
	return c
}

var errForm = errors.New("the server returned a value of another form")

// Scan reads the columns. NULL becomes nil; a destination that cannot be nil is an error then. A
// destination that is nil itself is left out.
func (r Row) Scan(dest ...any) error {
	if len(dest) != len(r) {
		return fmt.Errorf("%w: %d columns, not %d", errForm, len(r), len(dest))
	}
	for i, d := range dest {
		if err := decode(r[i], d); err != nil {
			return fmt.Errorf("column %d: %w", i+1, err)
		}
	}
	return nil
}

// decode reads one value.
func decode(b []byte, dest any) (err error) {
	switch d := dest.(type) {
	case nil:
		return nil
	case *[]byte:
		if *d = nil; b != nil {
			*d = append([]byte{}, b...)
		}
		return nil
	case **string:
		return orNil(b, d)
	case **bool:
		return orNil(b, d)
	case *[]string:
		*d, err = texts(b)
		return err
	}
	if b == nil {
		return fmt.Errorf("%w: none", errForm)
	}
	var n int64
	switch d := dest.(type) {
	case *string:
		*d = string(b)
	case *bool:
		if len(b) != 1 {
			return errForm
		}
		*d = b[0] != 0
	case *time.Time:
		n, err = number(b, 8)
		*d = time.UnixMicro(n + since2000)
	case *int:
		n, err = number(b, 8)
		*d = int(n)
	case *int64:
		*d, err = number(b, 8)
	case *int32:
		n, err = number(b, 4)
		*d = int32(n)
	case *int16:
		n, err = number(b, 2)
		*d = int16(n)
	default:
		return fmt.Errorf("a value of type %T cannot be received", dest)
	}
	return err
}

// orNil reads a value that may be NULL.
func orNil[T any](b []byte, dest **T) error {
	*dest = nil
	if b == nil {
		return nil
	}
	*dest = new(T)
	return decode(b, *dest)
}

// since2000 is 2000-01-01 in Unix µs: from there the server counts.
const since2000 = 946_684_800_000_000

// number reads an integer of at most so many bytes.
func number(b []byte, most int) (n int64, err error) {
	switch {
	case len(b) > most:
	case len(b) == 8:
		return int64(binary.BigEndian.Uint64(b)), nil
	case len(b) == 4:
		return int64(int32(binary.BigEndian.Uint32(b))), nil
	case len(b) == 2:
		return int64(int16(binary.BigEndian.Uint16(b))), nil
	}
	return 0, fmt.Errorf("%w: an integer of %d bytes", errForm, len(b))
}

// texts reads an array of texts.
func texts(b []byte) (all []string, err error) {
	if b == nil {
		return nil, nil
	}
	word := func() (n uint32) {
		if len(b) < 4 {
			b, err = nil, errForm
			return 0
		}
		n, b = binary.BigEndian.Uint32(b), b[4:]
		return n
	}
	dimensions, _, _ := word(), word(), word()
	if dimensions == 0 {
		return []string{}, err
	}
	if dimensions > 1 {
		return nil, fmt.Errorf("%w: a list of lists", errForm)
	}
	for count, _ := word(), word(); count > 0 && err == nil; count-- {
		n := word()
		if err == nil && uint64(n) > uint64(len(b)) { // or it is NULL
			err = errForm
		}
		if err == nil {
			all, b = append(all, string(b[:n])), b[n:]
		}
	}
	return all, err
}
