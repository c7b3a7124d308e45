// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two processes of a host with one connection, and what they say of the way that it takes.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use iwarp::cm::{ConnectParams, Connection, Listener, connect};
use iwarp::{
    CompletionQueue, Device, LocalPath, MemoryRegion, Options, ProtectionDomain, QueuePair, report,
};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::kin::Kin;
use super::{DEADLINE, End, parts, pattern, until};

const LEN: usize = 40_000;

/// The lines about the way, at the level `info`.
#[derive(Clone, Default)]
pub struct Said(Arc<Mutex<Vec<String>>>);

impl Said {
    fn listen() -> Self {
        let said = Self::default();
        tracing::subscriber::set_global_default(said.clone()).unwrap();
        said
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Subscriber for Said {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("iwarp")
    }

    fn event(&self, event: &Event<'_>) {
        let line = report::line(event).replace('\n', " ");
        if line.contains("shared memory") || line.contains(STAYS) {
            self.0.lock().unwrap().push(line);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// One of the two.
struct Neighbour {
    device: Device,
    listener: Option<Listener>,
    said: Said,
    ends: Vec<(End, MemoryRegion)>,
}

/// The words of a line about a connection that does not move.
pub const STAYS: &str = "stays with TCP";
/// The words of a line about a connection that its process does not know yet.
pub const IN_VAIN: &str = "asks for shared memory in vain";

/// The acts of a process besides: before it uses the library, and at other words of its parent.
pub trait Acts {
    fn first(&mut self) {}
    fn act(&mut self, _word: &str) {}
}

/// No acts.
pub struct Plain;
impl Acts for Plain {}

/// Something before it uses the library.
pub struct First<F: FnMut()>(pub F);
impl<F: FnMut()> Acts for First<F> {
    fn first(&mut self) {
        self.0();
    }
}

/// Something when its parent says so.
pub struct Then<F: FnMut(&str)>(pub F);
impl<F: FnMut(&str)> Acts for Then<F> {
    fn act(&mut self, word: &str) {
        self.0(word);
    }
}

/// Forks one, which listens at an address or not.
fn neighbour(listens_at: Option<IpAddr>, acts: &mut dyn Acts) -> Kin {
    Kin::fork(|talk| {
        acts.first();
        let said = Said::listen();
        let device = Device::with_options(Options::new().local(LocalPath::Rings)).unwrap();
        let bind = |ip| Listener::bind(&device, SocketAddr::new(ip, 0)).unwrap();
        let listener = listens_at.map(bind);
        let mut neighbour = Neighbour { device, listener, said, ends: Vec::new() };
        loop {
            let line = talk.hear();
            if line == "end" {
                return;
            }
            talk.tell(&neighbour.obey(&line, acts));
        }
    })
}

impl Neighbour {
    fn obey(&mut self, line: &str, acts: &mut dyn Acts) -> String {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "where" => return self.listener.as_ref().unwrap().local_addr().unwrap().to_string(),
            "accept" => {
                let (listener, (pd, send_cq, recv_cq, qp)) =
                    (self.listener.as_ref().unwrap(), parts(&self.device, 4));
                // An attempt that its client has given up may wait in front of this one.
                let incoming = loop {
                    match listener.accept(Some(DEADLINE / 4)) {
                        Ok(Some(incoming)) if incoming.private_data() == rest.as_bytes() => {
                            break incoming;
                        }
                        Ok(Some(_)) => {}
                        other => return format!("failed: {other:?}"),
                    }
                };
                match incoming.accept(&qp, &ConnectParams::default()) {
                    Ok(connection) => self.connected(pd, send_cq, recv_cq, qp, connection),
                    Err(error) => return format!("failed: {error}"),
                }
            }
            "dial" => {
                let (pd, send_cq, recv_cq, qp) = parts(&self.device, 4);
                let (addr, attempt) = rest.split_once(' ').unwrap();
                let addr: SocketAddr = addr.parse().unwrap();
                let mut params = ConnectParams::default();
                params.private_data = attempt.as_bytes().to_vec();
                match connect(&self.device, addr, &qp, &params, DEADLINE / 4) {
                    Ok(connection) => self.connected(pd, send_cq, recv_cq, qp, connection),
                    Err(error) => return format!("failed: {error}"),
                }
            }
            "turn" => self.turn(rest == "first"),
            "hang up" => drop(self.ends.pop()),
            "look" => {
                let path = self.ends.last().unwrap().0.qp.local_path();
                return format!("{path:?}: {}", self.said.lines().join(" | "));
            }
            _ => acts.act(line),
        }
        String::new()
    }

    fn connected(
        &mut self,
        pd: ProtectionDomain,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue,
        qp: QueuePair,
        connection: Connection,
    ) {
        let end = End { device: self.device.clone(), pd, send_cq, recv_cq, qp, connection };
        let inbox = end.region(LEN);
        end.post_recv(1, &[inbox.whole()]);
        self.ends.push((end, inbox));
    }

    /// Bytes there and back by the last connection.
    fn turn(&self, first: bool) {
        let (end, inbox) = self.ends.last().unwrap();
        let octets = pattern(LEN, 3);
        let from = end.region_of(&octets);
        let send = || {
            end.send(2, &[from.whole()]);
            end.sent();
        };
        if first {
            send();
        }
        assert_eq!(end.received().byte_len as usize, LEN);
        assert!(inbox.buffer().unwrap().to_vec() == octets, "other bytes");
        end.post_recv(1, &[inbox.whole()]);
        if !first {
            send();
        }
    }
}

/// Both, the one that connects first.
pub struct Neighbours {
    pub client: Kin,
    pub server: Kin,
    addr: String,
    attempts: u32,
}

/// The way of a connection, as both ends see it, and the lines about it that they have logged.
#[derive(Debug)]
pub struct Way {
    pub moved: bool,
    pub lines: [String; 2],
}

impl Neighbours {
    /// Two processes that do something of their own besides.
    pub fn new(client: &mut dyn Acts, server: &mut dyn Acts) -> Self {
        let at = "127.0.0.1".parse().unwrap();
        let (client, server) = (neighbour(None, client), neighbour(Some(at), server));
        Self::of(client, server)
    }

    /// One process that does something of its own besides, the first one or the other.
    pub fn with_one(first: bool, acts: &mut dyn Acts) -> Self {
        if first { Self::new(acts, &mut Plain) } else { Self::new(&mut Plain, acts) }
    }

    /// The first of the two, or the other.
    pub fn end(&mut self, first: bool) -> &mut Kin {
        if first { &mut self.client } else { &mut self.server }
    }

    /// Two processes that [`apart`] has made.
    pub fn of(client: Kin, mut server: Kin) -> Self {
        let addr = server.ask("where");
        Self { client, server, addr, attempts: 0 }
    }

    /// One more connection; an end says why there is none.
    pub fn connect(&mut self) -> Result<(), String> {
        self.attempts += 1;
        self.client.tell(&format!("dial {} {}", self.addr, self.attempts));
        let there = self.server.ask(&format!("accept {}", self.attempts));
        let here = self.client.hear();
        match (here.is_empty(), there.is_empty()) {
            (true, true) => Ok(()),
            _ => {
                for (end, said) in [(&mut self.client, &here), (&mut self.server, &there)] {
                    if said.is_empty() {
                        end.ask("hang up");
                    }
                }
                Err(format!("{here}; {there}"))
            }
        }
    }

    /// Bytes pass there and back.
    pub fn turn(&mut self) {
        self.server.tell("turn last");
        self.client.tell("turn first");
        self.client.hear();
        self.server.hear();
    }

    pub fn look(&mut self) -> Way {
        let lines = [self.client.ask("look"), self.server.ask("look")];
        Way { moved: lines.iter().all(|said| said.starts_with("Rings")), lines }
    }

    /// Bytes pass until the connection has moved, or an end says that it does not.
    pub fn outcome(&mut self) -> Way {
        until("an agreement", || {
            self.turn();
            let way = self.look();
            let stays = way.lines.iter().any(|said| said.contains(STAYS) || said.contains(IN_VAIN));
            (way.moved || stays).then_some(way)
        })
    }

    /// As [`Self::outcome`], for good.
    pub fn agree(&mut self) -> Way {
        let way = self.outcome();
        (0..20).for_each(|_| self.turn());
        let later = self.look();
        assert_eq!(way.moved, later.moved, "{way:?} {later:?}");
        later
    }

    /// Bytes pass until the connection has moved.
    pub fn move_on(&mut self) {
        until("the move", || {
            self.turn();
            self.look().moved.then_some(())
        });
    }
}

impl Kin {
    /// Its answer.
    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }
}

/// A process that listens at an address or not, for [`Neighbours::of`].
pub fn apart(listens_at: Option<IpAddr>) -> Kin {
    neighbour(listens_at, &mut Plain)
}
