package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/internal/raft/frame"
)

// frameFormat is "QC" on the wire. Part of the format.
var frameFormat = frame.Format{Magic: 0x4351, Version: 1}

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

func write(w io.Writer, t frameType, bytesMax int, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode control message: %w", err)
	}
	if len(payload) > bytesMax {
		return fmt.Errorf("encode control message: it has %d bytes, at most %d are sent", len(payload), bytesMax)
	}
	b := append(make([]byte, frame.HeaderBytes, frame.HeaderBytes+len(payload)), payload...)
	frameFormat.Fill(b, uint8(t))
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("send control message: %w", err)
	}
	return nil
}

func read(r io.Reader, want frameType, bytesMax uint32, v any) error {
	room := func(kind uint8, length uint32) ([]byte, error) {
		switch {
		case frameType(kind) != want:
			return nil, fmt.Errorf("%w: type %d where %d belongs", ErrCorrupt, kind, want)
		case length > bytesMax:
			return nil, fmt.Errorf("%w: %d bytes, at most %d are sent", ErrCorrupt, length, bytesMax)
		}
		return nil, nil
	}
	_, payload, err := frame.NewReader(r, frameFormat, ErrCorrupt, room).Next()
	if err != nil {
		return fmt.Errorf("receive control message: %w", err)
	}
	if err := json.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}
