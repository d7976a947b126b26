package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// tokenRole says what a token allows. The role operate includes reading.
type tokenRole string

const (
	roleRead    tokenRole = "read"
	roleOperate tokenRole = "operate"
)

const (
	// tokensBytesMax and tokensMax bound the file of tokens. tokenLengthMin makes tokens hard to guess:
	// 32 letters of base64 are 192 bits.
	tokensBytesMax = 64 << 10
	tokensMax      = 100
	tokenLengthMin = 32
	// tokensEvery is how often the file is read. So it is also how long a token stays valid after
	// its line was deleted.
	tokensEvery = time.Second
)

// token is one line of the file. Only the hash of the token is kept.
type token struct {
	role tokenRole
	name string
	sum  [sha256.Size]byte
}

// tokens are the tokens of a file, which is read every tokensEvery: to withdraw a token, delete its
// line. Requests use what was read last, and never wait for the file's disk.
type tokens struct {
	path   string // "" = no tokens
	logger *slog.Logger
	held   atomic.Pointer[heldTokens] // nil = the file was not read yet
}

// heldTokens are the tokens of the file, or the error of reading it.
type heldTokens struct {
	list []token
	err  error
}

// current returns the tokens that are valid now. If the file cannot be read it returns an
// error, and nobody is let in.
func (t *tokens) current() ([]token, error) {
	if t.path == "" {
		return nil, nil
	}
	held := t.held.Load()
	if held == nil {
		return nil, errTokensUnread
	}
	return held.list, held.err
}

// read reads the file, and logs an error once; clients are not told the details. Listen calls it
// first, then follow.
func (t *tokens) read() error {
	if t.path == "" {
		return nil
	}
	list, err := readTokens(t.path)
	before := t.held.Swap(&heldTokens{list, err})
	if err != nil && (before == nil || before.err == nil || before.err.Error() != err.Error()) {
		t.logger.Error("the API's tokens cannot be used: requests that need one are refused", "error", err)
	}
	return err
}

// follow reads the file again and again until ctx ends.
func (t *tokens) follow(ctx context.Context) {
	if t.path == "" {
		return
	}
	ticker := time.NewTicker(tokensEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = t.read() // it logs the error, and current returns it
		}
	}
}

// CheckTokens tells whether an agent could read a file of tokens.
func CheckTokens(path string) error {
	_, err := readTokens(path)
	return err
}

// readTokens reads a file of lines "ROLE NAME TOKEN". Errors contain no part of a line, because it
// may be a token.
func readTokens(path string) ([]token, error) {
	// Without O_NONBLOCK a FIFO would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("read api.tokens_file: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read api.tokens_file: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read api.tokens_file: %s is not a regular file", path)
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

var (
	errTokenLine    = errors.New("write ROLE NAME TOKEN, the role read or operate")
	errTokensUnread = errors.New("api.tokens_file was not read yet")
)

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
			return nil, fmt.Errorf("line %d: a name has letters, digits, and . _ - only, 64 at most", line)
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

// find returns the token that was sent, from the list. It takes the same time for every token:
// it compares the hashes of all.
func find(list []token, said string) (found token, ok bool) {
	sum := sha256.Sum256([]byte(said))
	for _, t := range list {
		if subtle.ConstantTimeCompare(t.sum[:], sum[:]) == 1 {
			found, ok = t, true
		}
	}
	return found, ok
}
