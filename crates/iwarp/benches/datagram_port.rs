// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cost of a datagram port, beside the system calls below it.
//!
//!     cargo bench -p iwarp --bench datagram_port
//!
//! One thread sends and receives on loopback, so its CPU time is measured: both ends, and no
//! scheduler. Subjects take turns in each round; medians of rounds are printed, and the median of
//! each one's time beside that of the first of its group in its round.

use std::convert::Infallible;
use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr;

use iwarp::Outbox;
use iwarp::port::{BurstCursor, DatagramPort, DatagramSettings, Sent, datagrams};
use iwarp_roce::wire::{
    Bth, Burst, Deth, Header, Message, Numbering, Path, Position, Psn, SendTail, Transport,
};
use iwarp_types::{AddressVector, Digest};
use rustix::time::{ClockId, clock_gettime};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Rounds of `cargo bench`. Elsewhere one shows that all of it runs.
const ROUNDS: usize = 21;
/// Bytes of BTH, DETH and ICRC.
const AROUND: usize = 12 + 8 + 4;

fn main() {
    for mtu in [4096, 1024] {
        let packets = 60 * 1024 / mtu;
        let octets = packets * mtu;
        println!("\n{packets} packets of {mtu} bytes each time, for each packet:");
        let mut bare = Bare::new(packets * (mtu + AROUND), mtu + AROUND, 1);
        let (port, built) = (Ports::new(true), Ports::new(true));
        compare(
            packets,
            octets,
            300,
            &mut [
                ("bare GSO + GRO", &mut || bare.go()),
                ("port, burst sent again", &mut port.again(packets, mtu)),
                ("port, built with ICRC each time", &mut built.anew(packets, mtu)),
            ],
        );
    }
    println!("\nlists of 32 datagrams with 64 bytes, for each datagram:");
    let mut bare = Bare::new(64 + AROUND, 64 + AROUND, 32);
    let [single, train, made, made_train] = [false, true, false, true].map(Ports::new);
    compare(
        32,
        32 * 64,
        300,
        &mut [
            ("bare sendmmsg + recvmmsg", &mut || bare.go()),
            ("port, one by one", &mut single.again(32, 64)),
            ("port, one by one, built with ICRC", &mut made.anew(32, 64)),
            ("port, as a train", &mut train.again(32, 64)),
            ("port, as a train, built with ICRC", &mut made_train.anew(32, 64)),
        ],
    );
    println!("\n4 bytes there and back, for each half:");
    let (one, other) = (std_socket(), std_socket());
    let port = Ports::new(true);
    let made = Ports::new(true);
    compare(
        2,
        8,
        3000,
        &mut [
            ("bare sendto + recvfrom", &mut || std_ping_pong(&one, &other)),
            ("port, burst sent again", &mut port.ping_pong(false)),
            ("port, built with ICRC each time", &mut made.ping_pong(true)),
        ],
    );
}

type Subject<'a> = (&'a str, &'a mut dyn FnMut());

/// Runs subjects in turns, each `times` times in a round.
fn compare(packets: usize, octets: usize, times: usize, subjects: &mut [Subject<'_>]) {
    let mut nanos = vec![Vec::new(); subjects.len()];
    let rounds = if env::args().any(|word| word == "--bench") { ROUNDS } else { 1 };
    for round in 0..=rounds {
        for (taken, (_, subject)) in nanos.iter_mut().zip(subjects.iter_mut()) {
            let start = cpu_nanos();
            (0..times).for_each(|_| subject());
            let each = (cpu_nanos() - start) / (times * packets) as f64;
            // The first round warms up.
            if round > 0 {
                taken.push(each);
            }
        }
    }
    let first = nanos[0].clone();
    for ((name, _), nanos) in subjects.iter().zip(nanos) {
        let ratios = nanos.iter().zip(&first).map(|(nanos, first)| nanos / first);
        let (nanos, ratio) = (median(nanos.clone()), median(ratios.collect()));
        let gigabytes = (octets / packets) as f64 / nanos;
        let millions = 1000.0 / nanos;
        println!(
            "  {name:36} {nanos:7.0} ns {gigabytes:6.2} GB/s {millions:6.2} M/s   x {ratio:.2}"
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn cpu_nanos() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Two ports.
struct Ports {
    from: Box<dyn DatagramPort>,
    to: Box<dyn DatagramPort>,
    there: Path,
    back: Path,
}

impl Ports {
    fn new(segmenting: bool) -> Self {
        let settings = DatagramSettings { segmenting, ..Default::default() };
        let open = || datagrams().open(SocketAddr::new(LOCALHOST, 0), &settings).expect("a port");
        let (from, to) = (open(), open());
        let way = |from: SocketAddr, to: SocketAddr| {
            let path = Path::new(AddressVector::new(from.ip(), to.ip()), from.port());
            Path { destination_port: to.port(), ..path }
        };
        let there = way(from.local_addr(), to.local_addr());
        let back = way(to.local_addr(), from.local_addr());
        Self { from, to, there, back }
    }

    /// One burst, sent each time.
    fn again(&self, packets: usize, octets: usize) -> impl FnMut() {
        let mut burst = Burst::new(self.from.numbering(), usize::MAX);
        let payload = vec![7; octets];
        (0..packets).for_each(|psn| push(&mut burst, &self.there, psn as u32, &payload));
        move || {
            let sent = self.from.send(&burst, &mut BurstCursor::default()).expect("a port");
            assert_eq!(sent, Sent::All);
            receive(&*self.to, packets);
        }
    }

    /// A burst that is built each time.
    fn anew(&self, packets: usize, octets: usize) -> impl FnMut() {
        let mut outbox = Outbox::new(&*self.from, usize::MAX);
        let payload = vec![7; octets];
        move || {
            let burst = outbox.fill(&*self.from).expect("room");
            (0..packets).for_each(|psn| push(burst, &self.there, psn as u32, &payload));
            assert_eq!(outbox.flush(&*self.from).expect("a port"), Sent::All);
            receive(&*self.to, packets);
        }
    }

    /// One packet there and one back.
    fn ping_pong(&self, anew: bool) -> impl FnMut() {
        let mut bursts = [&self.there, &self.back].map(|path| {
            let mut burst = Burst::new(Numbering::Counted, usize::MAX);
            push(&mut burst, path, 0, &[7; 4]);
            burst
        });
        move || {
            let ways = [(&self.from, &self.to, &self.there), (&self.to, &self.from, &self.back)];
            for (burst, (from, to, path)) in bursts.iter_mut().zip(ways) {
                if anew {
                    burst.clear();
                    push(burst, path, 0, &[7; 4]);
                }
                let sent = from.send(burst, &mut BurstCursor::default()).expect("a port");
                assert_eq!(sent, Sent::All);
                receive(&**to, 1);
            }
        }
    }
}

fn push(burst: &mut Burst, path: &Path, psn: u32, payload: &[u8]) {
    let header = Header {
        bth: Bth::new(17, Psn::new(psn)),
        transport: Transport::Ud,
        deth: Some(Deth { qkey: 1, source_qp: 18 }),
        message: Message::Send { position: Position::Only, tail: SendTail::Plain },
    };
    let fill = |out: &mut [u8], digest: &mut Digest| {
        out.copy_from_slice(payload);
        digest.update(out);
        Ok::<(), Infallible>(())
    };
    let Ok(()) = burst.push(path, &header, payload.len(), fill);
}

fn receive(port: &dyn DatagramPort, packets: usize) {
    let mut got = 0;
    while got < packets {
        got += port.receive(&mut |_, packet| assert!(packet.len() >= AROUND)).unwrap_or(0);
    }
}

fn std_socket() -> UdpSocket {
    let socket = UdpSocket::bind((LOCALHOST, 0)).expect("a socket");
    socket.set_nonblocking(true).expect("an option");
    socket
}

/// As many bytes as a packet has.
fn std_ping_pong(one: &UdpSocket, other: &UdpSocket) {
    let mut octets = [7; 4 + AROUND];
    for (from, to) in [(one, other), (other, one)] {
        from.send_to(&octets, to.local_addr().expect("an address")).expect("loopback takes it");
        while to.recv_from(&mut octets).is_err() {}
    }
}

/// The system calls alone, with everything made ready before. The sender is not connected, as a
/// port's is not.
struct Bare {
    from: UdpSocket,
    to: UdpSocket,
    sending: Vec<libc::mmsghdr>,
    receiving: Vec<libc::mmsghdr>,
    _memory: (Box<[libc::iovec]>, Box<libc::sockaddr_in>, Vec<u8>, Vec<u8>),
}

impl Bare {
    /// So many messages in one call, each with so many bytes in packets of `segment`.
    fn new(octets: usize, segment: usize, messages: usize) -> Self {
        let (from, to) = (std_socket(), std_socket());
        let large = 4 << 20;
        rustix::net::sockopt::set_socket_recv_buffer_size(&to, large).expect("an option");
        if octets > segment {
            for (socket, name, value) in
                [(&from, libc::UDP_SEGMENT, segment as i32), (&to, libc::UDP_GRO, 1)]
            {
                // SAFETY: the value outlives the call.
                let set = unsafe {
                    let value = ptr::from_ref(&value).cast();
                    libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, name, value, 4)
                };
                assert_eq!(set, 0);
            }
        }
        let port = to.local_addr().expect("an address").port();
        let mut name = Box::new(libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: port.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
            sin_zero: [0; 8],
        });
        let mut sent = vec![7_u8; octets];
        let mut received = vec![0_u8; messages * PLACE];
        let places = received.chunks_mut(PLACE);
        let mut parts: Box<[_]> = places
            .map(|place| libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: 1 << 16 })
            .chain([libc::iovec { iov_base: sent.as_mut_ptr().cast(), iov_len: octets }])
            .collect();
        let (sending, receiving) = (0..messages)
            .map(|place| {
                // SAFETY: plain data, for which all zeros is a value.
                let [mut out, mut back]: [libc::mmsghdr; 2] = unsafe { std::mem::zeroed() };
                out.msg_hdr.msg_iov = &raw mut parts[messages];
                out.msg_hdr.msg_iovlen = 1;
                out.msg_hdr.msg_name = ptr::from_mut(&mut *name).cast();
                out.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
                back.msg_hdr.msg_iov = &raw mut parts[place];
                back.msg_hdr.msg_iovlen = 1;
                (out, back)
            })
            .unzip();
        Self { from, to, sending, receiving, _memory: (parts, name, sent, received) }
    }

    fn go(&mut self) {
        let count = self.sending.len() as u32;
        // SAFETY: the headers point to parts and bytes that live as long as they.
        unsafe {
            let list = self.sending.as_mut_ptr();
            assert_eq!(libc::sendmmsg(self.from.as_raw_fd(), list, count, 0), count as i32);
            let mut got = 0;
            while got < count {
                let rest = self.receiving[got as usize..].as_mut_ptr();
                let left = count - got;
                let more = libc::recvmmsg(self.to.as_raw_fd(), rest, left, 0, ptr::null_mut());
                got += u32::try_from(more).unwrap_or(0);
            }
        }
    }
}

/// Bytes from one place for a message to the next: not all on one set of cache lines.
const PLACE: usize = (1 << 16) + 320;
