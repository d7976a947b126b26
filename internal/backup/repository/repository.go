package repository

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
)

// ErrNotFound is returned for an object that is not there.
var ErrNotFound = errors.New("object is not in the repository")

// ObjectsMax bounds the objects of a repository.
const ObjectsMax = 1_000_000

// Object is an object of a repository.
type Object struct {
	Name string
	// Bytes is its length; -1 = not known.
	Bytes int64
}

// Store is a repository. All methods may be called from any goroutine.
type Store interface {
	// Put stores what fill writes under a name. It replaces an object of that name.
	Put(ctx context.Context, name string, fill func(io.Writer) error) error
	// Get opens an object, or returns ErrNotFound. The caller closes the reader; Close may return
	// an error, too.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns all objects, sorted by name.
	List(ctx context.Context) ([]Object, error)
	// Delete removes an object.
	Delete(ctx context.Context, name string) error
	// Whole tells whether every object that List shows is whole, even if its writer was killed.
	Whole() bool
	// Parts returns the unfinished files of Puts. With remove it removes those of interrupted Puts. For commands it
	// returns nothing: they look after their own remains.
	Parts(ctx context.Context, remove bool) ([]Part, error)
}

var nameFits = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._+-]{0,199}$`)

// checkName refuses a name that no object may have.
func checkName(name string) error {
	if !nameFits.MatchString(name) {
		return fmt.Errorf("%.200q cannot be the name of an object", name)
	}
	return nil
}

func tooMany(where string) error {
	return fmt.Errorf("%s has more than %d objects: delete old ones (quorate backup prune)", where, ObjectsMax)
}
