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

// Object is one, as List shows it.
type Object struct {
	Name string
	// Bytes is its length; -1 = it is not known.
	Bytes int64
}

// Store is a repository. All methods may be called from any goroutine.
type Store interface {
	// Put stores what fill writes under a name. There may be an object of that name.
	Put(ctx context.Context, name string, fill func(io.Writer) error) error
	// Get opens an object, or returns ErrNotFound. The reader is closed by the caller; its Close tells
	// what went wrong, too.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns all objects by their names.
	List(ctx context.Context) ([]Object, error)
	// Delete removes an object.
	Delete(ctx context.Context, name string) error
	// Whole: what List shows is whole, whatever was killed while it was written.
	Whole() bool
	// Parts returns what Puts have stored so far that have not ended, and removes what is left of those that were interrupted, if it is
	// asked to. What a command leaves is the command's own affair.
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
