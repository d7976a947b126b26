package netfence

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// setBare is the name of the only set that belongs to no window.
const setBare = "bare"

const (
	// metaTime is the wall clock in nanoseconds (NFT_META_TIME_NS, Linux 5.4).
	metaTime = 30
	// reg and regNext are two 4-byte registers side by side; an 8-byte value takes both.
	reg, regNext = unix.NFT_REG32_00, unix.NFT_REG32_01

	tcpFlagsOffset, tcpHeaderOffset = 13, 12
	finSynRstAck, syn               = 0x17, 0x02

	// ctOriginal is IP_CT_DIR_ORIGINAL, ctStatusDNAT is IPS_DST_NAT.
	ctOriginal, ctStatusDNAT = 0, 1 << 5
)

// Window says until when something may pass, by two clocks: the boot clock, which counts
// while the machine sleeps, and the wall clock. The zero Window is closed.
type Window struct {
	Boot time.Duration
	Wall time.Time
}

// State says what may pass.
type State struct {
	// Requests: bytes from clients, and new connections.
	Requests Window
	// Answers: bytes to clients.
	Answers Window
	// Redirected: requests on redirected connections; Requests must be open, too.
	Redirected Window
	// Redirect: new connections to the router go to the server.
	Redirect Window
}

// windows returns the windows in the order of windowNames.
func (s State) windows() [4]Window {
	return [...]Window{s.Requests, s.Answers, s.Redirected, s.Redirect}
}

var windowNames = [...]string{"requests", "answers", "redirected", "redirect"}

// halves returns the names of the two sets of a window. The window is open if it is open in one
// of them.
func halves(window string) [2]string { return [2]string{window + "_1", window + "_2"} }

// timeout is how long the kernel keeps the window from the moment when it takes it; now is the
// boot clock. 0 = the window is closed.
func (w Window) timeout(now time.Duration) time.Duration {
	return max(0, w.Boot-now-w.slack(now)).Truncate(time.Millisecond)
}

// slack is how long a call may take: an eighth of the window, but at least two ticks of the
// kernel.
func (w Window) slack(now time.Duration) time.Duration {
	return max((w.Boot-now)/8, 20*time.Millisecond)
}

// extends tells whether w lets everything pass that before lets pass. Then the kernel may keep
// before until it ends by itself.
func (w Window) extends(before Window) bool {
	return w.Boot >= before.Boot && !w.Wall.Round(0).Before(before.Wall.Round(0))
}

// elements returns the content of a set while w is open: the interval [0, Wall).
func (w Window) elements(now time.Duration) []nftables.SetElement {
	timeout := w.timeout(now)
	if timeout == 0 || w.Wall.UnixNano() <= 0 {
		return nil
	}
	return []nftables.SetElement{
		{Key: make([]byte, 8), Timeout: timeout},
		{Key: binary.BigEndian.AppendUint64(nil, uint64(w.Wall.UnixNano())), IntervalEnd: true},
	}
}

// ruleset is the table's content, without the elements of windows.
type ruleset struct {
	windows [len(windowNames)][2]*nftables.Set
	bare    *nftables.Set
	chains  []chain
}

type chain struct {
	*nftables.Chain
	rules [][]expr.Any
}

// rules returns the content of the table for a configuration.
func rules(c Config, table *nftables.Table) ruleset {
	var rs ruleset
	for i, window := range windowNames {
		for j, name := range halves(window) {
			rs.windows[i][j] = &nftables.Set{
				Table: table, Name: name, KeyType: nftables.TypeTimeDate, KeyByteOrder: binaryutil.BigEndian,
				Interval: true, HasTimeout: true,
			}
		}
	}
	rs.bare = &nftables.Set{
		Table: table, Name: setBare, Constant: true, KeyByteOrder: binaryutil.BigEndian,
		KeyType: nftables.SetDatatype{Name: "quorate_bare", Bytes: 8},
	}
	filter := func(name string, hook *nftables.ChainHook, rules ...[]expr.Any) chain {
		return chain{&nftables.Chain{Table: table, Name: name, Type: nftables.ChainTypeFilter,
			Hooknum: hook, Priority: nftables.ChainPriorityFilter}, rules}
	}
	nat := func(name string, hook *nftables.ChainHook, rules ...[]expr.Any) chain {
		return chain{&nftables.Chain{Table: table, Name: name, Type: nftables.ChainTypeNAT,
			Hooknum: hook, Priority: nftables.ChainPriorityNATDest}, rules}
	}
	plain := func(name string, rules ...[]expr.Any) chain {
		return chain{&nftables.Chain{Table: table, Name: name}, rules}
	}
	accept, drop := verdict(expr.VerdictAccept), verdict(expr.VerdictDrop)
	var input, output, requests [][]expr.Any
	if c.redirects() {
		input = append(input, join(c.router(), stray(), drop))
		output = append(output, join(c.server(12, 8, 0), stray(), drop))
		requests = append(requests, join(c.redirected(), outside("redirected"), goTo("closed")))
	}
	input = append(input, join(c.server(16, 24, 2), goTo("requests")))
	output = append(output, join(c.server(12, 8, 0), goTo("answers")))
	rs.chains = []chain{ // targets of a goto must come first
		plain("closed",
			join(newConnection(), reset()),
			join(c.noData(), accept),
			join(counted(), drop)),
		plain("requests", append(append(requests, within("requests", nil, accept)...), goTo("closed"))...),
		plain("answers", append(within("answers", nil, accept), goTo("closed"))...),
		filter("input", nftables.ChainHookInput, input...),
		filter("output", nftables.ChainHookOutput, output...),
	}
	if c.redirects() {
		redirect := within("redirect", c.router(), c.toServer())
		rs.chains = append(rs.chains,
			nat("arriving", nftables.ChainHookPrerouting, redirect...),
			nat("leaving", nftables.ChainHookOutput, redirect...))
	}
	return rs
}

// redirects tells whether connections can be redirected: the router must have clients of the
// server's address family.
func (c Config) redirects() bool {
	a := c.Router.Addr()
	return c.Router.IsValid() && (a == netip.IPv6Unspecified() || a.Is4() == c.Server.Addr().Is4())
}

// bareElements describes the packets without data: pairs of a packet's length and the length of
// its TCP header. IPv4 counts its own header of 20 bytes in the packet's length, IPv6 does not
// count its header of 40. A packet with IP options matches none: it is longer than the element
// with its TCP header.
func (c Config) bareElements() (all []nftables.SetElement) {
	own := 20
	if c.Server.Addr().Is6() {
		own = 0
	}
	for words := 5; words <= 15; words++ {
		key := binary.BigEndian.AppendUint16(nil, uint16(own+4*words))
		all = append(all, nftables.SetElement{Key: append(key, 0, 0, byte(words<<4), 0, 0, 0)})
	}
	return all
}

// family matches TCP of the server's family.
func (c Config) family() []expr.Any {
	return join(
		equals(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: reg}, []byte{c.protocolFamily()}),
		equals(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg}, []byte{unix.IPPROTO_TCP}))
}

func (c Config) protocolFamily() byte {
	if c.Server.Addr().Is6() {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// server matches the server's address and port at these offsets in the packet's headers.
func (c Config) server(at4, at6, portAt uint32) []expr.Any {
	return join(c.family(), c.address(c.Server.Addr(), at4, at6), port(c.Server.Port(), portAt))
}

func (c Config) address(a netip.Addr, at4, at6 uint32) []expr.Any {
	at := at4
	if a.Is6() {
		at = at6
	}
	raw := a.AsSlice()
	return equals(load(expr.PayloadBaseNetworkHeader, at, uint32(len(raw)), reg), raw)
}

func port(p uint16, at uint32) []expr.Any {
	return equals(load(expr.PayloadBaseTransportHeader, at, 2, reg), binary.BigEndian.AppendUint16(nil, p))
}

// router matches packets to the router's port, at its address or at any address of this host.
// Packets that this host forwards to others do not match.
func (c Config) router() []expr.Any {
	var where []expr.Any
	if a := c.Router.Addr(); a.IsUnspecified() {
		where = equals(&expr.Fib{Register: reg, FlagDADDR: true, ResultADDRTYPE: true},
			binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL))
	} else {
		where = c.address(a, 16, 24)
	}
	return join(c.family(), where, port(c.Router.Port(), 2))
}

func (c Config) toServer() []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: unix.NFT_REG_1, Data: c.Server.Addr().AsSlice()},
		&expr.Immediate{Register: unix.NFT_REG_2, Data: binary.BigEndian.AppendUint16(nil, c.Server.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(c.protocolFamily()),
			RegAddrMin: unix.NFT_REG_1, RegProtoMin: unix.NFT_REG_2, Specified: true},
	}
}

// within returns two rules, one for each half of the window: while the window is open, then
// holds for packets that match.
func within(window string, match, then []expr.Any) (rules [][]expr.Any) {
	for _, set := range halves(window) {
		rules = append(rules, join(match, wallClock(), []expr.Any{&expr.Lookup{SourceRegister: reg, SetName: set}}, then))
	}
	return rules
}

// outside matches while the window is closed.
func outside(window string) []expr.Any {
	e := wallClock()
	for _, set := range halves(window) {
		e = append(e, &expr.Lookup{SourceRegister: reg, SetName: set, Invert: true})
	}
	return e
}

// wallClock loads the wall clock, in the form of a window's key.
func wallClock() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: metaTime, Register: reg},
		&expr.Byteorder{SourceRegister: reg, DestRegister: reg, Op: expr.ByteorderHton, Len: 8, Size: 8},
	}
}

// redirected matches packets of a redirected connection. Connection tracking redirects every
// packet of it, also long after the first: a packet that the server has dropped comes again,
// and a client may use its port again.
func (c Config) redirected() []expr.Any {
	return join(
		equals(&expr.Ct{Key: expr.CtKeyPROTODST, Direction: ctOriginal, Register: reg}, binary.BigEndian.AppendUint16(nil, c.Router.Port())),
		hasBit(&expr.Ct{Key: expr.CtKeySTATUS, Register: reg}, ctStatusDNAT))
}

// stray matches packets that the kernel cannot assign to a connection, for example far outside
// of the TCP window. Such a packet is not translated. On its way in it would reach the router's
// port, and on its way out the client with a wrong address: both would answer with a reset.
func stray() []expr.Any {
	return hasBit(&expr.Ct{Key: expr.CtKeySTATE, Register: reg}, expr.CtStateBitINVALID)
}

// newConnection matches the first packet of a connection.
func newConnection() []expr.Any {
	return []expr.Any{
		load(expr.PayloadBaseTransportHeader, tcpFlagsOffset, 1, reg),
		&expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: 1, Mask: []byte{finSynRstAck}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: []byte{syn}},
	}
}

// noData matches packets that have only headers.
func (c Config) noData() []expr.Any {
	lengthAt := uint32(2)
	if c.Server.Addr().Is6() {
		lengthAt = 4
	}
	return []expr.Any{
		load(expr.PayloadBaseNetworkHeader, lengthAt, 2, reg),
		load(expr.PayloadBaseTransportHeader, tcpHeaderOffset, 1, regNext),
		&expr.Bitwise{SourceRegister: regNext, DestRegister: regNext, Len: 1, Mask: []byte{0xf0}, Xor: []byte{0}},
		&expr.Lookup{SourceRegister: reg, SetName: setBare},
	}
}

func load(base expr.PayloadBase, at, length, to uint32) expr.Any {
	return &expr.Payload{DestRegister: to, Base: base, Offset: at, Len: length}
}

func equals(load expr.Any, value []byte) []expr.Any {
	return []expr.Any{load, &expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: value}}
}

func hasBit(load expr.Any, bit uint32) []expr.Any {
	return []expr.Any{load,
		&expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: 4, Mask: binary.NativeEndian.AppendUint32(nil, bit), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: make([]byte, 4)},
	}
}

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }

func goTo(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

func reset() []expr.Any { return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}} }

// counted shows in "nft list table" how much was dropped.
func counted() []expr.Any { return []expr.Any{&expr.Counter{}} }

func join(parts ...[]expr.Any) (all []expr.Any) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
