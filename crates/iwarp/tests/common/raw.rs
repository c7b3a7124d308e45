// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer that says anything a test wants: bytes of start-up frames and FPDUs, right or wrong, over
//! a plain TCP socket, and what comes back taken apart.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use iwarp::Options;
use iwarp_os::TcpSocket;
use iwarp_proto::ddp::wire::{Header, Tagged, Untagged};
use iwarp_proto::framing::{Deframe as _, Frame as _};
use iwarp_proto::mpa::rx::Deframer;
use iwarp_proto::mpa::tx::Framer;
use iwarp_proto::mpa::wire::{EnhancedData, Frame, FrameKind};
use iwarp_proto::rdmap::wire::{Opcode, ReadRequest, Terminate, TerminateCode, split_control};
use iwarp_proto::types::{Mo, Msn, Qn};
use iwarp_types::{RtrTypes, Stag, TaggedOffset};

use super::{DEADLINE, End, process, until};

/// One end of a TCP connection that speaks iWARP by hand.
pub struct Raw {
    stream: TcpStream,
    received: Vec<u8>,
    framer: Framer,
    deframer: Deframer,
}

/// A start-up frame with its own private data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Startup {
    pub kind: FrameKind,
    pub markers: bool,
    pub crc: bool,
    pub rejected: bool,
    pub rev: u8,
    pub enhanced: Option<EnhancedData>,
    pub private_data: Vec<u8>,
}

/// A Request as a well-behaved peer of revision 2 sends it: CRC, client-server, 16 reads.
pub fn request() -> Startup {
    Startup {
        kind: FrameKind::Request,
        markers: false,
        crc: true,
        rejected: false,
        rev: 2,
        enhanced: Some(depths(16, 16)),
        private_data: Vec::new(),
    }
}

/// A Reply to it that accepts.
pub fn reply() -> Startup {
    Startup { kind: FrameKind::Reply, ..request() }
}

/// An end whose peer is written by hand, in Full Operation.
pub fn pair(crc: bool) -> (End, Raw) {
    pair_with(&Options::new(), crc)
}

/// As [`pair`], with more options of the end.
pub fn pair_with(options: &Options, crc: bool) -> (End, Raw) {
    let (device, listener, addr) = process::listen(&options.clone().crc(crc));
    thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let mut peer = Raw::connect(addr);
            peer.send(&Startup { crc, ..request() }.octets());
            let reply = peer.startup(FrameKind::Reply);
            assert!(!reply.rejected && reply.crc == crc);
            peer.operate(crc, false, false);
            peer.greet();
            peer
        });
        let end = process::accept(&device, &listener, 64, Vec::new());
        (end, peer.join().unwrap())
    })
}

/// Client-server model, with these depths.
pub fn depths(ird: u16, ord: u16) -> EnhancedData {
    EnhancedData { peer_to_peer: false, rtr: RtrTypes::NONE, ird, ord }
}

impl Startup {
    pub fn octets(&self) -> Vec<u8> {
        let frame = Frame {
            kind: self.kind,
            markers: self.markers,
            crc: self.crc,
            rejected: self.rejected,
            rev: self.rev,
            enhanced: self.enhanced,
            private_data: &self.private_data,
        };
        frame.encode().unwrap()
    }
}

/// The next thing to come on the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// An FPDU's ULPDU.
    Ulpdu(Vec<u8>),
    /// The end, in good order.
    Fin,
    /// The end by a reset.
    Reset,
}

/// Bytes that a segment of this end of a connection takes, now.
fn max_segment(stream: TcpStream) -> usize {
    TcpSocket::from(OwnedFd::from(stream)).maxseg().unwrap()
}

/// Bytes that a segment of a connection takes which has carried nothing yet: the smaller end's.
pub fn first_segment() -> usize {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    max_segment(one).min(max_segment(other))
}

impl Raw {
    /// Connects to a listener.
    pub fn connect(addr: SocketAddr) -> Self {
        Self::over(TcpStream::connect_timeout(&addr, DEADLINE).unwrap())
    }

    /// Connects to a listener from that address of this host.
    pub fn connect_from(ip: IpAddr, addr: SocketAddr) -> Self {
        let socket = TcpSocket::connectable(Some(SocketAddr::new(ip, 0)), addr).unwrap();
        socket.start_connecting(addr).unwrap();
        until("a TCP connection", || socket.finish_connect().ok());
        let stream = TcpStream::from(OwnedFd::from(socket));
        stream.set_nonblocking(false).unwrap();
        Self::over(stream)
    }

    /// Hears nothing any more, down to the acknowledgements that its system would send: as if its
    /// host were gone.
    pub fn vanish(&self) {
        let nothing = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 };
        let mut instructions = [nothing];
        let filter = libc::sock_fprog { len: 1, filter: instructions.as_mut_ptr() };
        // SAFETY: the kernel copies the filter, of so many instructions; both outlive the call.
        let result = unsafe {
            libc::setsockopt(
                self.stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const filter).cast(),
                size_of_val(&filter) as libc::socklen_t,
            )
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    /// Takes a connection.
    pub fn accept(listener: &TcpListener) -> Self {
        listener.set_nonblocking(true).unwrap();
        let (stream, _) = until("a TCP connection", || listener.accept().ok());
        stream.set_nonblocking(false).unwrap();
        Self::over(stream)
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self {
            stream,
            received: Vec::new(),
            framer: Framer::new(true, false),
            deframer: Deframer::new(true, false),
        }
    }

    /// Bytes that a segment takes which the other end, in this process too, sends: the two ends
    /// of a connection do not agree, each follows the other's window.
    pub fn far_segment(&self) -> usize {
        let ends = (self.stream.peer_addr().unwrap(), self.stream.local_addr().unwrap());
        let names = std::fs::read_dir("/proc/self/fd").unwrap();
        let fds = names.filter_map(|name| name.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
        fds.filter_map(|fd| {
            // SAFETY: only the duplicate is kept; a descriptor closed meanwhile gives an error.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            let stream = TcpStream::from(fd.try_clone_to_owned().ok()?);
            let is_it = (stream.local_addr().ok()?, stream.peer_addr().ok()?) == ends;
            is_it.then(|| max_segment(stream))
        })
        .next()
        .expect("the other end is in this process")
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, octets: &[u8]) {
        self.stream.write_all(octets).unwrap();
    }

    /// Sends bytes to a peer that may have closed already.
    pub fn try_send(&mut self, octets: &[u8]) -> bool {
        self.stream.write_all(octets).is_ok()
    }

    /// Reads a start-up frame.
    pub fn startup(&mut self, kind: FrameKind) -> Startup {
        self.try_startup(kind).expect("a start-up frame")
    }

    /// Reads a start-up frame; `None` where the stream ends before it.
    pub fn try_startup(&mut self, kind: FrameKind) -> Option<Startup> {
        loop {
            if let Some((frame, used)) = Frame::parse(kind, 2, &self.received).unwrap() {
                let startup = Startup {
                    kind,
                    markers: frame.markers,
                    crc: frame.crc,
                    rejected: frame.rejected,
                    rev: frame.rev,
                    enhanced: frame.enhanced,
                    private_data: frame.private_data.to_vec(),
                };
                self.received.drain(..used);
                return Some(startup);
            }
            if self.fill().is_some() {
                return None;
            }
        }
    }

    /// Enters Full Operation.
    pub fn operate(&mut self, crc: bool, send_markers: bool, receive_markers: bool) {
        self.framer = Framer::new(crc, send_markers);
        self.deframer = Deframer::new(crc, receive_markers);
    }

    /// More bytes; how the stream ended if it has.
    fn fill(&mut self) -> Option<Heard> {
        let mut room = [0; 65536];
        loop {
            match self.stream.read(&mut room) {
                Ok(0) => return Some(Heard::Fin),
                Ok(n) => {
                    self.received.extend_from_slice(&room[..n]);
                    return None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Some(Heard::Reset);
                }
                Err(error) => panic!("nothing comes: {error}"),
            }
        }
    }

    /// The bytes of an FPDU that carries `ulpdu`, which must be sent next.
    pub fn frame(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.framer.frame_len(ulpdu.len())];
        self.framer
            .write(&mut out, ulpdu, 0, |_, _, _| Ok::<(), ()>(()))
            .expect("nothing to be gathered");
        out
    }

    /// Sends an FPDU that carries `ulpdu`.
    pub fn send_ulpdu(&mut self, ulpdu: &[u8]) {
        let octets = self.frame(ulpdu);
        self.send(&octets);
    }

    /// Sends the zero-length Write that lets a responder talk.
    pub fn greet(&mut self) {
        self.send_ulpdu(&write(Stag(0), 0, &[]));
    }

    /// The next FPDU or the end.
    pub fn hear(&mut self) -> Heard {
        loop {
            let found = self.deframer.next(&mut self.received).expect("framing of what we hear");
            if let Some(fpdu) = found {
                let ulpdu = self.received[fpdu.start..fpdu.start + fpdu.len].to_vec();
                self.received.drain(..fpdu.consumed);
                return Heard::Ulpdu(ulpdu);
            }
            if let Some(end) = self.fill() {
                assert!(self.received.is_empty(), "the stream ends inside an FPDU");
                return end;
            }
        }
    }

    /// As [`Self::hear`], but the stream may end inside an FPDU.
    pub fn hear_cut(&mut self) -> Heard {
        match self.deframer.next(&mut self.received).expect("framing of what we hear") {
            Some(fpdu) => {
                let ulpdu = self.received[fpdu.start..fpdu.start + fpdu.len].to_vec();
                self.received.drain(..fpdu.consumed);
                Heard::Ulpdu(ulpdu)
            }
            None => self.fill().unwrap_or_else(|| self.hear_cut()),
        }
    }

    /// The next FPDU that is not a zero-length Write (those say what the sender can do).
    pub fn hear_message(&mut self) -> Heard {
        loop {
            match self.hear() {
                Heard::Ulpdu(ulpdu) if is_greeting(&ulpdu) => {}
                other => return other,
            }
        }
    }

    /// The next message, of that type.
    pub fn expect(&mut self, wanted: Opcode) -> (Header, Vec<u8>) {
        match self.hear_message() {
            Heard::Ulpdu(ulpdu) => {
                let (header, payload) = split(&ulpdu);
                assert_eq!(opcode(&header), wanted as u8, "{header:?}");
                (header, payload)
            }
            other => panic!("{other:?} instead of {wanted:?}"),
        }
    }

    /// Skips what was under way; the next Terminate, behind which nothing but the end in good
    /// order may come. Returns its payload.
    pub fn expect_terminate(&mut self) -> Vec<u8> {
        loop {
            match self.hear() {
                Heard::Ulpdu(ulpdu) => {
                    let (header, payload) = split(&ulpdu);
                    if opcode(&header) != Opcode::Terminate as u8 {
                        continue;
                    }
                    let Header::Untagged(h) = header else { panic!("tagged Terminate") };
                    let expected = Untagged {
                        last: true,
                        rsvd_ulp: [Opcode::Terminate.control(), 0, 0, 0, 0],
                        qn: Qn::TERMINATE,
                        msn: Msn::FIRST,
                        mo: Mo(0),
                    };
                    assert_eq!(h, expected);
                    assert_eq!(self.hear(), Heard::Fin, "behind a Terminate");
                    return payload;
                }
                other => panic!("{other:?} instead of a Terminate"),
            }
        }
    }

    /// The end in good order, and nothing before it but zero-length Writes.
    pub fn expect_fin(&mut self) {
        assert_eq!(self.hear_message(), Heard::Fin);
    }

    /// The end, in whichever way, before any byte.
    pub fn expect_end(&mut self) {
        assert_eq!(self.received, [0_u8; 0]);
        let end = self.fill();
        assert!(end.is_some(), "octets came: {:?}", self.received);
    }

    /// True if nothing comes for `time`.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            if !self.received.is_empty() {
                return false;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            self.stream.set_read_timeout(Some(left)).unwrap();
            let mut room = [0; 4096];
            let result = self.stream.read(&mut room);
            self.stream.set_read_timeout(Some(DEADLINE)).unwrap();
            match result {
                Ok(0) => return false,
                Ok(n) => self.received.extend_from_slice(&room[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Waits until something has come, and leaves it where it is.
    pub fn await_input(&self) {
        assert_ne!(self.stream.peek(&mut [0]).unwrap(), 0, "the stream ends");
    }

    /// Ends what this side sends.
    pub fn fin(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Resets the connection.
    pub fn reset(self) {
        let linger = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&self.stream, linger).unwrap();
    }
}

fn is_greeting(ulpdu: &[u8]) -> bool {
    let (header, payload) = split(ulpdu);
    payload.is_empty()
        && matches!(header, Header::Tagged(_))
        && opcode(&header) == Opcode::Write as u8
}

/// The DDP header of a ULPDU and what follows it.
pub fn split(ulpdu: &[u8]) -> (Header, Vec<u8>) {
    let header = Header::parse(ulpdu).unwrap();
    (header, ulpdu[header.wire_len()..].to_vec())
}

/// The opcode of a segment.
pub fn opcode(header: &Header) -> u8 {
    match header {
        Header::Tagged(h) => split_control(h.rsvd_ulp).1,
        Header::Untagged(h) => split_control(h.rsvd_ulp[0]).1,
    }
}

/// A tagged ULPDU.
pub fn tagged(control: u8, last: bool, stag: Stag, to: u64, payload: &[u8]) -> Vec<u8> {
    let to = TaggedOffset(to);
    emit(&Header::Tagged(Tagged { last, rsvd_ulp: control, stag, to }), payload)
}

/// An RDMA Write of one segment.
pub fn write(stag: Stag, to: u64, payload: &[u8]) -> Vec<u8> {
    tagged(Opcode::Write.control(), true, stag, to, payload)
}

/// A Read Response of one segment.
pub fn read_response(stag: Stag, to: TaggedOffset, payload: &[u8]) -> Vec<u8> {
    tagged(Opcode::ReadResponse.control(), true, stag, to.0, payload)
}

/// An untagged segment: what a test changes, it changes in the header.
pub fn untagged(opcode: Opcode, msn: u32) -> Untagged {
    Untagged {
        last: true,
        rsvd_ulp: [opcode.control(), 0, 0, 0, 0],
        qn: opcode.queue().expect("an untagged message"),
        msn: Msn(msn),
        mo: Mo(0),
    }
}

/// The ULPDU of a header and its payload.
pub fn segment(header: Untagged, payload: &[u8]) -> Vec<u8> {
    emit(&Header::Untagged(header), payload)
}

/// A Send of one segment.
pub fn send(msn: u32, payload: &[u8]) -> Vec<u8> {
    segment(untagged(Opcode::Send, msn), payload)
}

/// A Send with Invalidate of one segment.
pub fn send_invalidate(msn: u32, stag: Stag, payload: &[u8]) -> Vec<u8> {
    let mut header = untagged(Opcode::SendInvalidate, msn);
    header.rsvd_ulp[1..].copy_from_slice(&stag.0.to_be_bytes());
    segment(header, payload)
}

/// A Read Request.
pub fn read_request(msn: u32, size: u32, stag: Stag, to: u64) -> Vec<u8> {
    let request = ReadRequest {
        sink_stag: Stag(0x0bad_cafe),
        sink_to: TaggedOffset(0x1122_3344_5566_7788),
        size,
        source_stag: stag,
        source_to: TaggedOffset(to),
    };
    segment(untagged(Opcode::ReadRequest, msn), &request.octets())
}

/// A Terminate with nothing but its code.
pub fn terminate(layer: u8, etype: u8, code: u8) -> Vec<u8> {
    let mut octets = [0; iwarp_proto::rdmap::wire::TERMINATE_MAX_LEN];
    let code = TerminateCode { layer, etype, code };
    let len = Terminate { code, segment: None }.emit(&mut octets);
    segment(untagged(Opcode::Terminate, 1), &octets[..len])
}

fn emit(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![0; header.wire_len()];
    header.emit(&mut ulpdu);
    ulpdu.extend_from_slice(payload);
    ulpdu
}
