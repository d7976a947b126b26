package cluster

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// filled sets each field of v: every map, slice and pointer has something in it.
func filled(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				filled(t, v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		filled(t, v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		filled(t, key)
		filled(t, value)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint64, reflect.Uint8:
		v.SetUint(1)
	default:
		t.Fatalf("a field of kind %v: say how it is filled", v.Kind())
	}
}

// shared names what two values have in common that one of them could change for the other.
func shared(path string, a, b reflect.Value) (all []string) {
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if a.Type().Field(i).IsExported() {
				all = append(all, shared(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))...)
			}
		}
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if a.Pointer() == b.Pointer() {
			return []string{path}
		}
		switch a.Kind() {
		case reflect.Pointer:
			all = shared(path, a.Elem(), b.Elem())
		case reflect.Slice:
			all = shared(path, a.Index(0), b.Index(0))
		}
	}
	return all
}

// TestCloneSharesNothing: a dry run of a removal wrote the next key of that node into the committed state, whose map the copy shared. A node with
// that key was told that it was removed.
func TestCloneSharesNothing(t *testing.T) {
	var s State
	filled(t, reflect.ValueOf(&s).Elem())
	c := s.Clone()
	if d := cmp.Diff(s, c); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, path := range shared("State", reflect.ValueOf(s), reflect.ValueOf(c)) {
		t.Errorf("%s is shared", path)
	}
}
