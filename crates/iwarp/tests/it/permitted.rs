// SPDX-License-Identifier: MIT OR Apache-2.0

//! The things that the RFCs recommend or permit, and the library does.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use iwarp::cm::{ConnectParams, Listener};
use iwarp::port::Direction::Sent;
use iwarp::port::{
    Acceptor, Descriptors, IoPart, IoPartMut, Ipv6Listen, MemoryNetwork, Network, Owner, Platform,
    Port, Recording, Reservation, Sharing,
};
use iwarp::{Device, Ended, Options, QueuePairAttributes, WcStatus};
use iwarp_proto::framing::Deframe as _;
use iwarp_proto::mpa::rx::Deframer;
use iwarp_proto::mpa::wire::{Frame, FrameKind, MAX_ULPDU};
use iwarp_proto::rdmap::wire::Opcode;

use crate::common::raw::{Startup, depths, read_request, reply, request, send, write};
use crate::common::station::{Station, hasty};
use crate::common::{End, couple, next, parts, pattern, until};

fn client_and_server(client: &Device, server: &Device, addr: SocketAddr) -> (End, End) {
    let listener = Listener::bind(server, addr).unwrap();
    let [ours, theirs] = [client, server].map(|device| parts(device, 64));
    let (connection, accepted) = couple(client, &ours.3, &listener, &theirs.3);
    let end = |device: &Device, (pd, send_cq, recv_cq, qp), connection| End {
        device: device.clone(),
        pd,
        send_cq,
        recv_cq,
        qp,
        connection,
    };
    (end(client, ours, connection), end(server, theirs, accepted))
}

/// TCP cuts what one call gives it into segments from the first byte on, so that segments begin
/// with an FPDU where calls do, as far as FPDUs are as long as segments. Short ones share a
/// segment.
///
/// Covers: MPA-5044-5.1-03, MPA-5044-5.1-04
#[test]
fn each_call_takes_whole_fpdus_and_as_many_as_there_are() {
    let recording = Recording::default();
    let tcp = Platform::default();
    let network = recording.around(Arc::clone(&tcp.network));
    // 7 FPDUs: less than any socket takes at once.
    let options = Options::new().mulpdu(Some(512));
    let client = Device::on_platform(options, Platform { network, ..tcp }).unwrap();
    let server = Device::with_options(Options::default()).unwrap();
    let (client, server) =
        client_and_server(&client, &server, SocketAddr::from(([127, 0, 0, 1], 0)));
    let (source, sink) = (client.region_of(&pattern(3400, 1)), server.region(3400));
    server.post_recv(1, &[sink.whole()]);
    client.send(2, &[source.whole()]);
    server.received();
    client.sent();

    let mut deframer = Deframer::new(true, false);
    let mut largest = 0;
    for (number, call) in
        recording.passed().into_iter().filter(|passed| passed.direction == Sent).enumerate()
    {
        let mut octets = call.octets;
        if number == 0 {
            let (_, used) = Frame::parse(FrameKind::Request, 2, &octets).unwrap().expect("whole");
            octets.drain(..used);
        }
        let mut fpdus = 0;
        while !octets.is_empty() {
            let fpdu = deframer.next(&mut octets).expect("a good CRC");
            octets.drain(..fpdu.expect("the call ends with an FPDU").consumed);
            fpdus += 1;
        }
        largest = largest.max(fpdus);
    }
    assert!(largest > 1, "each FPDU has a call of its own");
}

/// The MTU of Ethernet less the headers of IPv4 and TCP, on a transport that does not say what a
/// segment takes.
///
/// Covers: MPA-5044-5.1-02
#[test]
fn an_unknown_segment_size_follows_from_the_mtu() {
    #[derive(Debug)]
    struct Silent;

    impl Port for Silent {
        fn send(&self, _: &[IoPart<'_>], _: bool) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn recv(&self, _: &mut [IoPartMut<'_>]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn has_input(&self) -> io::Result<bool> {
            Ok(false)
        }

        fn shutdown_write(&self) -> io::Result<()> {
            Ok(())
        }

        fn ends(&self) -> iwarp::port::Ends {
            iwarp::port::Ends { local: None, peer: SocketAddr::from(([10, 0, 0, 1], 1)) }
        }

        fn descriptors(&self) -> Descriptors<'_> {
            Descriptors::none()
        }
    }

    const ETHERNET: usize = 1500;
    const HEADERS: usize = 20 + 20;
    assert_eq!(Silent.max_segment(), ETHERNET - HEADERS);
}

/// A network whose ends talk before MPA begins, on the same streams.
#[derive(Debug)]
struct Talkative(Arc<dyn Network>);

const QUESTION: &[u8] = b"may we use RDMA from here on?";
const LAST: &[u8] = b"yes, and this is the last that is no MPA";

fn say(port: &dyn Port, words: &[u8]) {
    let mut sent = 0;
    until("room in the stream", || {
        match port.send(&[IoPart::new(&words[sent..])], false) {
            Ok(more) => sent += more,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        (sent == words.len()).then_some(())
    });
}

fn listen_for(port: &dyn Port, words: &[u8]) {
    let mut heard = vec![0; words.len()];
    let mut came = 0;
    until("words", || {
        match port.recv(&mut [IoPartMut::new(&mut heard[came..])]) {
            Ok(more) => came += more,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        (came == words.len()).then_some(())
    });
    assert_eq!(heard, words);
}

#[derive(Debug)]
struct TalkativeReservation(Box<dyn Reservation>);

#[derive(Debug)]
struct TalkativeAcceptor(Box<dyn Acceptor>);

impl Acceptor for TalkativeAcceptor {
    fn accept(&self) -> io::Result<Box<dyn Port>> {
        let port = self.0.accept()?;
        listen_for(&*port, QUESTION);
        say(&*port, LAST);
        Ok(port)
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.0.descriptors()
    }
}

impl Reservation for TalkativeReservation {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn listen(
        self: Box<Self>,
        backlog: u32,
    ) -> Result<Box<dyn Acceptor>, (Box<dyn Reservation>, io::Error)> {
        match self.0.listen(backlog) {
            Ok(acceptor) => Ok(Box::new(TalkativeAcceptor(acceptor))),
            Err((reservation, error)) => Err((Box::new(Self(reservation)), error)),
        }
    }

    fn listen_at(&self, ip: IpAddr, scope: u32, backlog: u32) -> io::Result<Box<dyn Acceptor>> {
        Ok(Box::new(TalkativeAcceptor(self.0.listen_at(ip, scope, backlog)?)))
    }

    fn connect(self: Box<Self>, _: SocketAddr, _: Option<u8>) -> io::Result<Box<dyn Port>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Network for Talkative {
    fn reserve(
        &self,
        addr: SocketAddr,
        ipv6: Ipv6Listen,
        sharing: Sharing,
    ) -> io::Result<Box<dyn Reservation>> {
        Ok(Box::new(TalkativeReservation(self.0.reserve(addr, ipv6, sharing)?)))
    }

    fn connect(
        &self,
        local: Option<SocketAddr>,
        peer: SocketAddr,
        class: Option<u8>,
    ) -> io::Result<Box<dyn Port>> {
        let port = self.0.connect(local, peer, class)?;
        say(&*port, QUESTION);
        listen_for(&*port, LAST);
        Ok(port)
    }

    fn looped(&self, ip: IpAddr, scope: u32) -> io::Result<Box<dyn Port>> {
        self.0.looped(ip, scope)
    }

    fn source_for(&self, peer: SocketAddr) -> io::Result<IpAddr> {
        self.0.source_for(peer)
    }

    fn owner_of(&self, theirs: SocketAddr, ours: SocketAddr) -> io::Result<Owner> {
        self.0.owner_of(theirs, ours)
    }
}

/// A stream may be handed to the library after its ends have talked, the last words being the
/// responder's; or at once.
///
/// Covers: MPA-5044-7.1-02, MPA-5044-7.1-03, MPA-5044-7.1.5-02
#[test]
fn mpa_begins_at_once_or_behind_a_streaming_mode() {
    let addr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let memory = MemoryNetwork::new();
    for talks in [false, true] {
        let host = |ip| {
            let network = memory.host(ip);
            if talks { Arc::new(Talkative(network)) as Arc<dyn Network> } else { network }
        };
        let recording = Recording::default();
        let device = |network| {
            let platform = Platform { network, ..Platform::default() };
            Device::on_platform(Options::default(), platform).unwrap()
        };
        let server = device(host(addr));
        let client = device(recording.around(host(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)))));
        let (client, server) = client_and_server(&client, &server, SocketAddr::new(addr, 0));
        // Messages that were said before are no business of the library's.
        let first = &recording.passed()[0];
        assert!(first.direction == Sent && first.octets.starts_with(b"MPA ID Req Frame"));
        let (source, sink) = (client.region_of(b"octets"), server.region(6));
        server.post_recv(1, &[sink.whole()]);
        client.send(2, &[source.whole()]);
        server.received();
        assert_eq!(sink.buffer().unwrap().to_vec(), b"octets");
    }
}

/// A program that does not like what the responder said in its private data leaves; before that it
/// has all of it.
///
/// Covers: MPA-5044-7.1.2-15
#[test]
fn an_initiator_may_leave_when_it_has_seen_the_private_data() {
    let station = Station::new(hasty());
    let (end, mut raw, _) = station.connect(&ConnectParams::default(), |_| Startup {
        private_data: b"I am not whom you want".to_vec(),
        ..reply()
    });
    let end = end.unwrap();
    assert_eq!(end.connection.private_data(), b"I am not whom you want");
    end.connection.disconnect();
    raw.expect_fin();
    raw.fin();
    end.ended(Ended::Closed, 0, 0);
}

/// FPDUs may come as soon as the peer has the Reply, before the program has posted or polled; and
/// the stream of the other direction goes on when this end has closed its own.
///
/// Covers: MPA-5044-7.1.2-08, MPA-5044-7.2-01
#[test]
fn each_half_of_a_connection_has_a_beginning_and_an_end_of_its_own() {
    let station = Station::new(hasty());
    let (end, mut raw, _) = station.accept(&request(), &ConnectParams::default());
    let region = end.region(64);
    raw.send_ulpdu(&write(region.rkey(), region.base().0, &[7; 64]));
    // It came before anything was posted or polled.
    until("the octets", || (region.buffer().unwrap().to_vec() == [7; 64]).then_some(()));
    end.connection.disconnect();
    raw.expect_fin();
    // Neither refused nor reset: the other half is open until this peer ends it.
    for msn in 1..=50 {
        raw.send_ulpdu(&send(msn, &[1; 1000]));
    }
    raw.fin();
    end.ended(Ended::Closed, 0, 0);
    station.others_do_not_notice();
}

/// TCP's window stays open while the program neither posts nor polls: more passes than the sockets
/// of both ends together have room for.
///
/// Covers: DDP-5041-A-01
#[test]
fn the_window_stays_open_though_the_program_does_nothing() {
    const TOTAL: usize = 24 << 20;
    const EACH: usize = 60_000;
    let station = Station::new(hasty());
    let (end, mut raw, _) = station.accept(&request(), &ConnectParams::default());
    let region = end.region(EACH);
    let octets = pattern(EACH, 3);
    for _ in 0..TOTAL / EACH {
        // Fails when the window is closed for longer than a raw peer waits.
        raw.send_ulpdu(&write(region.rkey(), region.base().0, &octets));
    }
    raw.send_ulpdu(&read_request(1, 0, region.rkey(), 0));
    raw.expect(Opcode::ReadResponse);
    assert_eq!(region.buffer().unwrap().to_vec(), octets);
}

/// The longest and the shortest FPDUs, in pieces of every kind.
///
/// Covers: MPA-5044-A.5.2-01
#[test]
fn an_fpdu_of_every_length_finds_room_in_pieces() {
    const HEADER: usize = 14;
    for crc in [true, false] {
        let station = Station::new(hasty().crc(crc));
        let asking = Startup { crc, ..request() };
        let (end, mut raw, _) = station.accept(&asking, &ConnectParams::default());
        let region = end.region(MAX_ULPDU);
        let mut msn = 0;
        for (len, piece) in [(MAX_ULPDU, 1000), (MAX_ULPDU, 1), (140, 1), (MAX_ULPDU, 65_535)] {
            let octets = pattern(len - HEADER, len as u64 + piece as u64);
            let fpdu = raw.frame(&write(region.rkey(), region.base().0, &octets));
            // Each of the first bytes by itself, as the length is among them.
            let (first, rest) = fpdu.split_at(100);
            for piece in first.chunks(1).chain(rest.chunks(piece.max(500))) {
                raw.send(piece);
            }
            msn += 1;
            raw.send_ulpdu(&read_request(msn, 0, region.rkey(), 0));
            raw.expect(Opcode::ReadResponse);
            assert_eq!(region.buffer().unwrap().to_vec()[..len - HEADER], octets);
        }
    }
}

/// A size for which one queue pair asks beyond the most that the device gives to each it does not
/// get, and the next one still gets its own.
///
/// Covers: DDP-5041-8.3.2-05, RDMAP-5040-8.1.2-06, SEC-5042-7.2-02,
/// SEC-5042-7.2-01
#[test]
fn no_queue_pair_gets_more_than_its_share() {
    let station = Station::new(hasty());
    let attributes = station.device.attributes();
    let most = attributes.max_qp_wr as usize;
    let pd = station.device.alloc_pd();
    let cq = station.device.create_cq(4, None).unwrap();
    let asking = QueuePairAttributes::new(&cq, &cq);
    for greedy in [asking.max_send_wr(most + 1), asking.max_recv_wr(most + 1)] {
        assert!(pd.create_qp(&greedy).is_err());
    }

    // Neither the program's wish nor the peer's gets more Reads than the device gives each, and
    // what the program did not ask for the peer does not get.
    let most = attributes.max_qp_rd_atom;
    for (asked, own) in [(8000, most), (8000, 4), (most, most)] {
        let asking = Startup { enhanced: Some(depths(0, asked)), ..request() };
        let (end, raw, _) = station.accept(&asking, &ConnectParams::new().ird(own).ord(0));
        let (_, given) = end.qp.read_depths();
        assert!(given <= usize::from(own), "{asked}, {own}: {given}");
        raw.reset();
    }
    // Others have theirs.
    let (end, mut raw, _) = station.accept(&request(), &ConnectParams::default());
    end.post_recv(1, &[]);
    raw.send_ulpdu(&send(1, b""));
    assert_eq!(next(&end.recv_cq).status, WcStatus::Success);
    station.others_do_not_notice();
}

/// A program that says nothing of its Reads gets as many in one direction as in the other.
///
/// Covers: RDMAP-5040-6.1-06
#[test]
fn depths_are_the_same_in_both_directions_unless_a_program_wants_others() {
    let station = Station::new(hasty());
    let (end, raw, asked) = station.connect(&ConnectParams::default(), |asked| Startup {
        enhanced: asked.enhanced,
        ..reply()
    });
    let word = asked.enhanced.unwrap();
    assert!(word.ird == word.ord && word.ird > 0, "{word:?}");
    let (ord, ird) = end.unwrap().qp.read_depths();
    assert_eq!(ord, ird);
    drop(raw);
}
