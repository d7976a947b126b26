package ship

import (
	"errors"

	"github.com/quorate/quorate/internal/backup/archive"
	"github.com/quorate/quorate/internal/backup/repository"
)

// Damaged tells whether an error of reading an object means that the object is damaged: then another try ends the same way, and
// only another object helps. It is false if the store did not deliver the object, and if it is encrypted for a key that
// is not here.
func Damaged(err error) bool {
	return errors.Is(err, repository.ErrSealed) || errors.Is(err, archive.ErrCorrupt) || errors.Is(err, archive.ErrData)
}
