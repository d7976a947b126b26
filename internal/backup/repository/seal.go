package repository

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// windowBytesMax bounds the memory that a reader needs.
const windowBytesMax = 8 << 20

// The first bytes of objects. Part of the formats of zstd and age.
var (
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
	ageMagic  = []byte("age-encryption.org/")
)

var (
	// ErrSealed is returned for an object that is damaged, so that it cannot be opened.
	ErrSealed = errors.New("object cannot be opened")
	// ErrGet is returned instead if the store failed to deliver the object, so nothing is known about
	// the object itself.
	ErrGet = errors.New("object was not read")
	// ErrEncrypted is returned instead for an object that needs a key, or another one: whether it is damaged is not known.
	ErrEncrypted = errors.New("object is encrypted")
)

// ParseRecipients parses age's public keys, "age1…".
func ParseRecipients(keys []string) (all []age.Recipient, err error) {
	for i, key := range keys {
		r, err := age.ParseX25519Recipient(key)
		if err != nil { // age's own text may have the key, which may be a private one
			return nil, fmt.Errorf("key %d is no public key of age: age-keygen prints one, which begins with age1", i+1)
		}
		all = append(all, r)
	}
	return all, nil
}

// Identities reads a file of age's private keys, as age-keygen writes it. It refuses a file that
// other accounts may read. "" = no keys.
func Identities(path string) ([]age.Identity, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the private key: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("others may read it (%v): chmod 600 it", info.Mode())
	}
	var all []age.Identity
	if err == nil {
		all, err = age.ParseIdentities(f)
	}
	if err != nil {
		return nil, fmt.Errorf("read the private key %s: %w", path, err)
	}
	return all, nil
}

// Seal returns a writer that compresses to w, and encrypts for the recipients, if there are any.
// Close ends the object and leaves w open. Without Close the object cannot be read.
func Seal(w io.Writer, recipients []string) (io.WriteCloser, error) {
	keys, err := ParseRecipients(recipients)
	if err != nil {
		return nil, err
	}
	s := &sealer{}
	if len(keys) > 0 {
		if s.encrypted, err = age.Encrypt(w, keys...); err != nil {
			return nil, fmt.Errorf("encrypt an object: %w", err)
		}
		w = s.encrypted
	}
	s.Encoder, err = zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowBytesMax/2), zstd.WithEncoderCRC(true))
	if err != nil {
		return nil, fmt.Errorf("compress an object: %w", err)
	}
	return s, nil
}

type sealer struct {
	*zstd.Encoder
	encrypted io.WriteCloser
}

// Close ends the object.
func (s *sealer) Close() error {
	err := s.Encoder.Close()
	if s.encrypted != nil && err == nil {
		err = s.encrypted.Close()
	}
	if err != nil {
		return fmt.Errorf("seal an object: %w", err)
	}
	return nil
}

// Unseal returns a reader of an object that Seal has made. identities are the private keys; an object
// that is not encrypted needs none. The caller closes the reader, and r.
func Unseal(r io.Reader, identities []age.Identity) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	begin, err := in.Peek(len(ageMagic))
	if len(begin) == 0 {
		return nil, notOpened(orEmpty(err))
	}
	var src io.Reader = in
	if bytes.Equal(begin, ageMagic) {
		if len(identities) == 0 {
			return nil, fmt.Errorf("%w: name the file of the private key (--identity)", ErrEncrypted)
		}
		if src, err = age.Decrypt(in, identities...); err != nil {
			if _, wrong := errors.AsType[*age.NoIdentityMatchError](err); wrong {
				return nil, fmt.Errorf("%w for another key than that of --identity", ErrEncrypted)
			}
			return nil, notOpened(err)
		}
	} else if !bytes.HasPrefix(begin, zstdMagic) {
		return nil, fmt.Errorf("%w: it begins with % x", ErrSealed, begin)
	}
	d, err := zstd.NewReader(cutReader{src}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(windowBytesMax))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	return &unsealer{Reader: d, close: d.Close}, nil
}

// notOpened wraps an error in ErrSealed, unless the store is to blame (ErrGet).
func notOpened(err error) error {
	if errors.Is(err, ErrGet) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrSealed, err)
}

// cutReader replaces io.ErrUnexpectedEOF of age or a store by another error. zstd takes
// io.ErrUnexpectedEOF for an end where a frame could begin: so an object that is cut off after age's
// header would look empty.
type cutReader struct{ io.Reader }

// Read implements io.Reader.
func (r cutReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it is cut off")
	}
	return n, err
}

func orEmpty(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errors.New("it is empty")
	}
	return err
}

type unsealer struct {
	io.Reader
	close func()
}

// Read implements io.Reader.
func (u *unsealer) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = notOpened(err)
	}
	return n, err
}

// Close implements io.Closer.
func (u *unsealer) Close() error {
	u.close()
	return nil
}
