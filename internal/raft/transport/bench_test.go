package transport

import (
	"bytes"
	"fmt"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// benchmarkShapes are entries × bytes of an append: a single commit, a group
// commit, a large transaction.
var benchmarkShapes = []struct{ entries, bytes int }{{1, 1 << 10}, {64, 1 << 10}, {1, 1 << 20}}

func shapedAppend(entries, size int) *pb.Message {
	data := make([][]byte, entries)
	for i := range data {
		data[i] = bytes.Repeat([]byte{byte(i)}, size)
	}
	return appendMessage(1, data...)
}

// BenchmarkCodec compares frameAppend with protobuf, encoding and decoding. It
// is why the layout of our own exists.
func BenchmarkCodec(b *testing.B) {
	for _, s := range benchmarkShapes {
		m := shapedAppend(s.entries, s.bytes)
		b.Run(fmt.Sprintf("append/%dx%d", s.entries, s.bytes), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(s.entries * s.bytes))
			var out batch
			stream := encoded(b, classAppend, m)
			in := bytes.NewReader(stream)
			r := newFrameReader(in, classAppend)
			for b.Loop() {
				_ = out.addRaft(m, classAppend)
				_ = out.whole()
				out.reset()
				in.Reset(stream)
				_, payload, err := r.next()
				if err != nil {
					b.Fatal(err)
				}
				if _, err := decodeAppend(payload, nodeA, nodeB); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("protobuf/%dx%d", s.entries, s.bytes), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(s.entries * s.bytes))
			payload, err := proto.Marshal(m)
			if err != nil {
				b.Fatal(err)
			}
			var out batch
			if err := out.add(frameRaft, payload, classAppend); err != nil {
				b.Fatal(err)
			}
			stream := bytes.Clone(out.buf)
			out.reset()
			in := bytes.NewReader(stream)
			r := newFrameReader(in, classAppend)
			for b.Loop() {
				start, firstCut := out.begin()
				out.buf, _ = proto.MarshalOptions{}.MarshalAppend(out.buf, m)
				_ = out.finish(start, firstCut, frameRaft, classAppend)
				_ = out.whole()
				out.reset()
				in.Reset(stream)
				_, payload, err := r.next()
				if err != nil {
					b.Fatal(err)
				}
				if _, err := decodeRaft(payload, nodeA, nodeB); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRoundTrip is what a commit pays: a 1 KiB append to a follower and
// its answer, over loopback, through both transports.
func BenchmarkRoundTrip(b *testing.B) {
	answered := make(chan struct{}, 1)
	leader, _ := pair(b, func(leader, follower *node) {
		follower.onRaft = func(m *pb.Message) {
			follower.Send([]*pb.Message{{
				Type: pb.MsgAppResp.Enum(), From: m.To, To: m.From, Term: m.Term, Index: m.Index,
			}})
			<-follower.raft // room for the message itself
		}
		follower.raft <- nil
		leader.onRaft = func(*pb.Message) {
			answered <- struct{}{}
			<-leader.raft
		}
		leader.raft <- nil
	})
	msgs := []*pb.Message{shapedAppend(1, 1<<10)}
	b.ReportAllocs()
	for b.Loop() {
		leader.Send(msgs)
		<-answered
	}
}
