package control

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Part of the format, do not change.
const (
	frameMagic       = "QC"
	frameVersion     = 1
	frameHeaderBytes = 12
	frameCRCOffset   = 8
)

// frameType says what a frame's payload is. Part of the format.
type frameType uint8

const (
	frameRequest frameType = 1
	frameAnswer  frameType = 2
)

// ErrCorrupt is returned for bytes that are no frame of this version.
var ErrCorrupt = errors.New("control: malformed frame")

// WriteRequest sends a request.
func WriteRequest(w io.Writer, r Request) error { return write(w, frameRequest, RequestBytesMax, r) }

// ReadRequest receives a request.
func ReadRequest(r io.Reader) (req Request, err error) {
	err = read(r, frameRequest, RequestBytesMax, &req)
	return req, err
}

// WriteAnswer sends an answer.
func WriteAnswer(w io.Writer, a Answer) error { return write(w, frameAnswer, AnswerBytesMax, a) }

// ReadAnswer receives an answer.
func ReadAnswer(r io.Reader) (a Answer, err error) {
	err = read(r, frameAnswer, AnswerBytesMax, &a)
	return a, err
}

func checksum(header, payload []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(header[:frameCRCOffset], table), table, payload)
}

func write(w io.Writer, t frameType, bytesMax int, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode control message: %w", err)
	}
	if len(payload) > bytesMax {
		return fmt.Errorf("encode control message: it has %d bytes, at most %d are sent", len(payload), bytesMax)
	}
	b := append(make([]byte, 0, frameHeaderBytes+len(payload)), frameMagic...)
	b = append(b, frameVersion, byte(t))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, checksum(b, payload))
	if _, err := w.Write(append(b, payload...)); err != nil {
		return fmt.Errorf("send control message: %w", err)
	}
	return nil
}

func read(r io.Reader, want frameType, bytesMax uint32, v any) error {
	header := make([]byte, frameHeaderBytes)
	if _, err := io.ReadFull(r, header); err != nil {
		return fmt.Errorf("receive control message: %w", err)
	}
	length := binary.LittleEndian.Uint32(header[4:])
	switch {
	case string(header[:2]) != frameMagic || header[2] != frameVersion:
		return fmt.Errorf("%w: magic or version %x", ErrCorrupt, header[:3])
	case frameType(header[3]) != want:
		return fmt.Errorf("%w: type %d where %d belongs", ErrCorrupt, header[3], want)
	case length > bytesMax:
		return fmt.Errorf("%w: %d bytes, at most %d are sent", ErrCorrupt, length, bytesMax)
	}
	payload := make([]byte, length)
	if _, err := io.ReadFull(r, payload); err != nil {
		return fmt.Errorf("receive control message: %w", err)
	}
	if checksum(header, payload) != binary.LittleEndian.Uint32(header[frameCRCOffset:]) {
		return fmt.Errorf("%w: wrong checksum", ErrCorrupt)
	}
	if err := json.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}
