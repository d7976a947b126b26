package api

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

// A token's Role says what it is good for. Who may operate may read.
type tokenRole string

const (
	roleRead    tokenRole = "read"
	roleOperate tokenRole = "operate"
)

const (
	// tokensBytesMax and tokensMax bound the file of tokens, tokenLengthMin keeps anybody from guessing
	// one: 32 letters of base64 are 192 bits.
	tokensBytesMax = 64 << 10
	tokensMax      = 100
	tokenLengthMin = 32
)

// token is one line of the file. The token itself is not kept.
type token struct {
	role tokenRole
	name string
	sum  [sha256.Size]byte
}

// tokens are those of a file, which is read again when it changes: a token is taken back by
// deleting its line.
type tokens struct {
	path   string // "" = there are none
	logger *slog.Logger

	mu   sync.Mutex
	seen stamp
	list []token
	err  error // of the file as it was seen
}

// stamp tells whether a file is as it was.
type stamp struct {
	mode    os.FileMode
	size    int64
	changed time.Time
}

// current returns the tokens that hold now. A file that cannot be read lets nobody in.
func (t *tokens) current() ([]token, error) {
	if t.path == "" {
		return nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Stat(t.path)
	if err != nil {
		return nil, t.failed(fmt.Errorf("look at api.tokens_file: %w", err))
	}
	now := stamp{info.Mode(), info.Size(), info.ModTime()}
	if now == t.seen && (t.list != nil || t.err != nil) {
		return t.list, t.err
	}
	list, err := readTokens(t.path)
	if err != nil {
		err = t.failed(err)
	} else {
		t.err = nil
	}
	t.seen, t.list = now, list
	return list, err
}

// failed notes what is wrong with the file, and logs it once: whoever asks is told less.
func (t *tokens) failed(err error) error {
	if t.err == nil || t.err.Error() != err.Error() {
		t.logger.Error("the API's tokens: nobody who needs one may ask", "error", err)
	}
	t.err, t.list, t.seen = err, nil, stamp{}
	return err
}

// CheckTokens tells whether an agent could read a file of tokens.
func CheckTokens(path string) error {
	_, err := readTokens(path)
	return err
}

// readTokens reads a file of lines "ROLE NAME TOKEN". No part of a line is in an error: it may be a
// token.
func readTokens(path string) ([]token, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read api.tokens_file: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read api.tokens_file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read api.tokens_file: %s is no file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("others may read api.tokens_file %s (mode %04o): chmod 600 it, and make new tokens if somebody has read it", path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, tokensBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("read api.tokens_file: %w", err)
	}
	if len(text) > tokensBytesMax {
		return nil, fmt.Errorf("read api.tokens_file: %s is larger than %d bytes", path, tokensBytesMax)
	}
	list, err := parseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("read api.tokens_file %s: %w", path, err)
	}
	return list, nil
}

var errTokenLine = errors.New("write ROLE NAME TOKEN, the role read or operate")

func parseTokens(text []byte) ([]token, error) {
	name := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	list, line := []token{}, 0
	names := map[string]bool{}
	for part := range bytes.Lines(text) {
		line++
		fields := strings.Fields(string(part))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d has %d words: %w", line, len(fields), errTokenLine)
		}
		t := token{role: tokenRole(fields[0]), name: fields[1], sum: sha256.Sum256([]byte(fields[2]))}
		switch {
		case t.role != roleRead && t.role != roleOperate:
			return nil, fmt.Errorf("line %d begins with no role: %w", line, errTokenLine)
		case !name.MatchString(t.name):
			return nil, fmt.Errorf("line %d: the name has other signs than letters, digits and . _ - in it, or is too long", line)
		case names[t.name]:
			return nil, fmt.Errorf("line %d: another line has that name: the audit log would not tell them apart", line)
		case len(fields[2]) < tokenLengthMin:
			return nil, fmt.Errorf("line %d: the token is shorter than %d letters: `openssl rand -hex 32` makes one", line, tokenLengthMin)
		case len(list) == tokensMax:
			return nil, fmt.Errorf("there are more than %d tokens", tokensMax)
		}
		names[t.name] = true
		list = append(list, t)
	}
	return list, nil
}

// find returns whose token it is. It takes as long for each: all are compared, by their sums.
func find(list []token, said string) (found token, ok bool) {
	sum := sha256.Sum256([]byte(said))
	for _, t := range list {
		if subtle.ConstantTimeCompare(t.sum[:], sum[:]) == 1 {
			found, ok = t, true
		}
	}
	return found, ok
}
